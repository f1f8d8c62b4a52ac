// What attention refuses, and with which words; and what wrong contents do where nobody looks.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "support/attention_case.h"
#include "support/devices.h"
#include "support/refusal.h"
#include "tessera/attention.h"

namespace tessera::test {
namespace {

class AttentionRefusalTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, AttentionRefusalTest, testing::ValuesIn(test_devices()),
                         device_name);

// A small call that has everything: dense, and in the second table ragged or paged.
struct RefusedAttention {
  explicit RefusedAttention(Context& ctx)
      : t(ctx, {.batch = 1, .n_q = 5, .n_k = 6, .heads = 4, .kv_heads = 2, .dim = 8}) {}
  AttentionTensors t;
};

// numbers<1, 2, 3>() is an i32 tensor of them.
template <std::int32_t... kNumbers>
Tensor numbers(std::initializer_list<std::int64_t> shape) {
  static std::int32_t values[] = {kNumbers...};
  return Tensor(values, DType::i32, shape);
}

using Args = AttentionArgs;

// Tensors of a table of refusals are made of host memory; on a GPU they only claim to be there. A
// call that is refused does not look.
void place_on(Device device, Args& args) {
  for (Tensor* tensor : {&args.q, &args.k, &args.q_offsets, &args.k_offsets, &args.pages.table,
                         &args.pages.lengths, &args.pages.holes, &args.rope_on_read.inv_freq}) {
    if (tensor->device.is_cpu()) tensor->device = device;
  }
}

void expect_refusals(Context& ctx, const std::vector<Refusal<Args>>& refusals) {
  for (const Refusal<Args>& refusal : refusals) {
    SCOPED_TRACE(refusal.text);
    RefusedAttention call(ctx);
    refusal.spoil(call.t.args);
    place_on(ctx.device(), call.t.args);
    EXPECT_TRUE(refuses([&] { attention(ctx, call.t.args); }, refusal.text, refusal.code));
    EXPECT_TRUE(call.t.out.untouched() && call.t.lse.untouched());
    EXPECT_TRUE(call.t.q.untouched() && call.t.k.untouched() && call.t.v.untouched());
  }
  EXPECT_EQ(ctx.trace().calls("attention"), 0);
}

TEST_P(AttentionRefusalTest, RefusesWrongTensors) {
  expect_refusals(
      ctx(),
      {
          {[](Args& a) { a.q = {}; }, "attention: q was not given"},
          {[](Args& a) { a.k = {}; }, "attention: k was not given"},
          {[](Args& a) { a.v = {}; }, "attention: v was not given"},
          {[](Args& a) { a.out = {}; }, "attention: out was not given"},
          {[](Args& a) { a.q.device = Device::cuda(3); },
           "attention: q is on cuda:3, but the context runs on " + to_string(GetParam())},
          {[](Args& a) { a.q.dtype = DType::i8; }, "attention: q is i8; accepted: f32, f16, bf16"},
          {[](Args& a) { a.k.dtype = DType::u8; },
           "attention: k is u8; accepted: f32, f16, bf16, f8e4m3, i8"},
          {[](Args& a) { a.v.dtype = DType::bf16; }, "attention: v is bf16; accepted: f32"},
          {[](Args& a) { a.out.dtype = DType::f16; }, "attention: out is f16; accepted: f32"},
          {[](Args& a) { a.lse.dtype = DType::f16; }, "attention: lse is f16; accepted: f32"},
          {[](Args& a) { a.k.data = nullptr; },
           "attention: k f32[1, 6, 2, 8] has no data (null pointer)"},
          {[](Args& a) { a.v.data = a.v.ptr<char>() + 2; },
           "attention: v f32[1, 6, 2, 8] is not aligned to its 4-byte elements"},
          {[](Args& a) { a.q.strides[3] = 2; },
           "attention: the last dimension of q must be contiguous, got f32[1, 5, 4, 8] with "
           "strides "
           "[160, 32, 8, 2]"},
          {[](Args& a) { a.k.strides[1] = std::numeric_limits<std::int64_t>::max(); },
           "size 5 x 9223372036854775807 does not fit into 64 bits", ErrorCode::overflow},
          {[](Args& a) { a.out.strides[1] = 8; },
           "attention: out reaches an element more than once: f32[1, 5, 4, 8] with strides [160, "
           "8, 8, "
           "1]"},
          {[](Args& a) { a.out = a.q; }, "attention: out overlaps the memory of q"},
          {[](Args& a) { a.lse.data = a.out.ptr<float>() + 3; },
           "attention: lse overlaps the memory of out"},
      });
}

TEST_P(AttentionRefusalTest, RefusesWrongShapesAndValues) {
  expect_refusals(
      ctx(),
      {
          {[](Args& a) {
             a.q = a.q.view({5, 4, 8});
           },
           "attention: q must be [batch, queries, heads, dim], got f32[5, 4, 8]"},
          {[](Args& a) { a.q = a.q.slice(2, 0, 0); }, "attention: q has no heads: f32[1, 5, 0, 8]"},
          {[](Args& a) {
             a.q = a.q.view({1, 1, 4, 40}).slice(3, 0, 0);
           },
           "attention: head dim 0 of q is not supported; it must be in 1..256"},
          {[](Args& a) {
             a.q = Tensor(a.q.data, DType::f32, {1, 1, 1, 257});
           },
           "attention: head dim 257 of q is not supported; it must be in 1..256"},
          {[](Args& a) {
             a.k = a.k.view({12, 8});
           },
           "attention: k must be [batch, keys, kv_heads, dim], got f32[12, 8]"},
          {[](Args& a) { a.v = a.v.slice(1, 0, 5); },
           "attention: v must have the shape of k, f32[1, 6, 2, 8], got f32[1, 5, 2, 8]"},
          {[](Args& a) {
             a.k = a.k.view({1, 12, 2, 4}), a.v = a.k;
           },
           "attention: k has head dim 4, q has 8; they must be equal"},
          {[](Args& a) {
             a.k = a.k.view({1, 4, 3, 8}), a.v = a.k;
           },
           "attention: the 3 heads of k and v must divide the 4 heads of q"},
          {[](Args& a) {
             a.k = a.k.view({2, 3, 2, 8}), a.v = a.k;
           },
           "attention: k has batch 2, q has 1; they must be equal"},
          {[](Args& a) { a.out = a.out.slice(1, 0, 4); },
           "attention: out must have the shape of q, f32[1, 5, 4, 8], got f32[1, 4, 4, 8]"},
          {[](Args& a) {
             a.lse = a.lse.view({1, 5, 4});
           },
           "attention: lse must have shape [1, 4, 5], got f32[1, 5, 4]"},
          {[](Args& a) { a.scale = INFINITY; },
           "attention: scale is inf; it must be finite, or 0 for 1 / sqrt(dim)"},
          {[](Args& a) { a.softcap = -1.f; },
           "attention: softcap is -1; it must be positive and finite, or 0 for none"},
          {[](Args& a) { a.softcap = NAN; },
           "attention: softcap is nan; it must be positive and finite, or 0 for none"},
          {[](Args& a) { a.dropout.p = 1.f; }, "attention: dropout p is 1; it must be in [0, 1)"},
          {[](Args& a) { a.dropout.p = -0.5f; },
           "attention: dropout p is -0.5; it must be in [0, 1)"},
          {[](Args& a) { a.dropout.p = NAN; }, "attention: dropout p is nan; it must be in [0, 1)"},
          {[](Args& a) { a.rope_on_read.inv_freq = numbers<1, 2>({2}); },
           "attention: rope_on_read.inv_freq is i32; accepted: f32"},
          {[](Args& a) {
             a.rope_on_read.inv_freq = Tensor(a.q.data, DType::f32, {2, 2});
           },
           "attention: rope_on_read.inv_freq must have shape [any], got f32[2, 2]"},
          {[](Args& a) { a.rope_on_read.inv_freq = Tensor(a.q.data, DType::f32, {5}); },
           "attention: rope_on_read rotates 10 dims, more than the head dim 8"},
          {[](Args& a) { a.mask = Mask::blocks(BlockMask::local(2, 2, 3, 1)); },
           "attention: the mask covers 2 x 3 blocks of 2; 5 queries and 6 keys need 3 x 3"},
          {[](Args& a) { a.mask = Mask::blocks(BlockMask::local(4, 9, 1, 1)); },
           "attention: the mask covers 9 x 1 blocks of 4; 5 queries and 6 keys need 2 x 2"},
      });
}

// A pool of three pages of two keys.
void paged(Args& a, Tensor table, Tensor lengths, Tensor holes = {}) {
  a.k = a.k.view({3, 2, 2, 8});
  a.v = a.v.view({3, 2, 2, 8});
  a.pages = {table, lengths, holes};
}
void ragged(Args& a, Tensor q_offsets, Tensor k_offsets) {
  a.q_offsets = q_offsets;
  a.k_offsets = k_offsets;
}

TEST_P(AttentionRefusalTest, RefusesWrongOffsetsAndPages) {
  expect_refusals(
      ctx(),
      {
          {[](Args& a) { ragged(a, numbers<0, 5>({2}), {}); },
           "attention: q_offsets and k_offsets must be given together"},
          {[](Args& a) { ragged(a, {}, numbers<0, 6>({2})); },
           "attention: q_offsets and k_offsets must be given together"},
          {[](Args& a) { ragged(a, Tensor(a.q.data, DType::i64, {2}), numbers<0, 6>({2})); },
           "attention: q_offsets is i64; accepted: i32"},
          {[](Args& a) {
             ragged(a, numbers<0, 5>({2, 1}), numbers<0, 6>({2}));
           },
           "attention: q_offsets must have shape [any], got i32[2, 1]"},
          {[](Args& a) { ragged(a, numbers<0, 5>({0}), numbers<0, 6>({2})); },
           "attention: q_offsets is empty; it must hold one number more than sequences"},
          {[](Args& a) { ragged(a, numbers<0, 5>({2}), numbers<0, 3, 6>({3})); },
           "attention: q_offsets holds 2 numbers, k_offsets 3; each must hold one more than "
           "sequences"},
          {[](Args& a) {
             ragged(a, numbers<0, 5>({2}), numbers<0, 6>({2}));
             a.k = a.k.view({2, 3, 2, 8}), a.v = a.k;
           },
           "attention: k f32[2, 3, 2, 8] must have batch 1 where k_offsets is given: sequences lie "
           "one "
           "after the other"},
          {[](Args& a) { a.pages.lengths = numbers<4>({1}); },
           "attention: pages.lengths was given without pages.table"},
          {[](Args& a) {
             a.pages.holes = numbers<4, 1>({1, 2});
           },
           "attention: pages.holes was given without pages.table"},
          {[](Args& a) {
             paged(a, numbers<0, 1>({1, 2}), numbers<4>({1}), Tensor(a.q.data, DType::f32, {1, 2}));
           },
           "attention: pages.holes is f32; accepted: i32"},
          {[](Args& a) {
             paged(a, numbers<0, 1>({1, 2}), numbers<4>({1}), numbers<0, 1>({2, 1}));
           },
           "attention: pages.holes must have shape [1, 2], got i32[2, 1]"},
          {[](Args& a) {
             paged(a, numbers<0, 1>({1, 2}), {});
           },
           "attention: pages.lengths was not given"},
          {[](Args& a) {
             paged(a, Tensor(a.q.data, DType::f32, {1, 2}), numbers<4>({1}));
           },
           "attention: pages.table is f32; accepted: i32"},
          {[](Args& a) {
             paged(a, numbers<0, 1>({2, 1}), numbers<4>({1}));
           },
           "attention: pages.table must have shape [1, any], got i32[2, 1]"},
          {[](Args& a) {
             paged(a, numbers<0, 1>({1, 2}), numbers<4, 4>({2}));
           },
           "attention: pages.lengths must have shape [1], got i32[2]"},
          {[](Args& a) {
             paged(a, numbers<0, 1>({1, 2}), numbers<4>({1}));
             a.k_offsets = numbers<0, 4>({2});
           },
           "attention: k_offsets cannot be given with pages, which have lengths of their own"},
          {[](Args& a) {
             paged(a, numbers<0, 1>({1, 2}), numbers<4>({1}));
             a.k = a.k.slice(1, 0, 0), a.v = a.k;
           },
           "attention: k f32[3, 0, 2, 8] has pages of no keys"},
      });
}

TEST_P(AttentionRefusalTest, RefusesWrongLengthsAndPageNumbers) {
  if (!GetParam().is_cpu()) GTEST_SKIP() << "not read on a GPU: SurvivesWrongLengthsAndPageNumbers";
  expect_refusals(
      ctx(), {
                 {[](Args& a) { ragged(a, numbers<1, 5>({2}), numbers<0, 6>({2})); },
                  "attention: q_offsets starts with 1; it must start with 0"},
                 {[](Args& a) { ragged(a, numbers<0, 4, 3, 5>({4}), numbers<0, 1, 2, 6>({4})); },
                  "attention: q_offsets falls from 4 to 3 at sequence 1; it must not fall"},
                 {[](Args& a) { ragged(a, numbers<0, 4>({2}), numbers<0, 6>({2})); },
                  "attention: q_offsets ends with 4; q has 5 rows"},
                 {[](Args& a) { ragged(a, numbers<0, 5>({2}), numbers<0, 7>({2})); },
                  "attention: k_offsets ends with 7; k has 6 rows"},
                 {[](Args& a) {
                    ragged(a, numbers<0, 2, 5>({3}), numbers<0, 1, 6>({3}));
                    a.mask = Mask::blocks(BlockMask::local(2, 2, 2, 1));
                  },
                  "attention: the mask covers 2 x 2 blocks of 2; 3 queries and 5 keys need 2 x 3"},
                 {[](Args& a) {
                    paged(a, numbers<0, 1>({1, 2}), numbers<5>({1}));
                  },
                  "attention: sequence 0 has length 5; its 2 pages of 2 keys hold 0..4"},
                 {[](Args& a) {
                    paged(a, numbers<0, 1>({1, 2}), numbers<-1>({1}));
                  },
                  "attention: sequence 0 has length -1; its 2 pages of 2 keys hold 0..4"},
                 {[](Args& a) {
                    paged(a, numbers<0, 3>({1, 2}), numbers<3>({1}));
                  },
                  "attention: page 1 of sequence 0 is 3; the pool holds pages 0..2"},
                 {[](Args& a) {
                    paged(a, numbers<-1, 0>({1, 2}), numbers<1>({1}));
                  },
                  "attention: page 0 of sequence 0 is -1; the pool holds pages 0..2"},
                 {[](Args& a) {
                    paged(a, numbers<0, 1>({1, 2}), numbers<3>({1}), numbers<-1, 1>({1, 2}));
                  },
                  "attention: sequence 0 has a hole of 1 slots at -1; neither may be negative"},
                 {[](Args& a) {
                    paged(a, numbers<0, 1>({1, 2}), numbers<3>({1}), numbers<1, -1>({1, 2}));
                  },
                  "attention: sequence 0 has a hole of -1 slots at 1; neither may be negative"},
                 {[](Args& a) {
                    paged(a, numbers<0, 1>({1, 2}), numbers<3>({1}), numbers<1, 2>({1, 2}));
                  },
                  "attention: sequence 0 has length 3 and a hole of 2 slots; its 2 pages of 2 keys "
                  "hold 4"},
                 {[](Args& a) {
                    paged(a, numbers<0, 3>({1, 2}), numbers<2>({1}), numbers<1, 1>({1, 2}));
                  },
                  "attention: page 1 of sequence 0 is 3; the pool holds pages 0..2"},
                 {[](Args& a) {
                    paged(a, numbers<0, 1>({1, 2}), numbers<4>({1}));
                    a.mask = Mask::blocks(BlockMask::local(2, 3, 1, 1));
                  },
                  "attention: the mask covers 3 x 1 blocks of 2; 5 queries and 4 keys need 3 x 2"},
             });
}

// Entries of the page table behind the last page in use may hold anything.
TEST_P(AttentionRefusalTest, DoesNotLookAtUnusedPages) {
  RefusedAttention call(ctx());
  Array pages({1, 2}), length({1}, 2);
  pages.data = {2, 99};
  const TestTensor table(ctx(), pages, DType::i32), lengths(ctx(), length, DType::i32);
  paged(call.t.args, table, lengths);
  attention(ctx(), call.t.args);
  EXPECT_FALSE(std::isnan(call.t.out.read().at(0, 4, 0, 0)));
}

// Where lengths and page numbers are not read before, they may be wrong: nothing outside of the
// tensors is touched, and what depends on a page that is not there is NaN.
TEST_P(AttentionRefusalTest, SurvivesWrongLengthsAndPageNumbers) {
  if (GetParam().is_cpu()) GTEST_SKIP() << "the CPU refuses them";
  const auto tensor = [&](const std::vector<std::int64_t>& shape, std::vector<double> values) {
    Array array(shape);
    array.data = std::move(values);
    return TestTensor(ctx(), array, DType::i32);
  };
  for (const auto& [pages, length, nan] : {std::tuple{std::vector{0., 3.}, 4., true},
                                           {{0., 3.}, 2., false},
                                           {{-1., 0.}, 1., true},
                                           {{0., 1.}, 5., false},
                                           {{0., 1.}, -7., false}}) {
    RefusedAttention call(ctx());
    const TestTensor table = tensor({1, 2}, pages), lengths = tensor({1}, {length});
    paged(call.t.args, table, lengths);
    attention(ctx(), call.t.args);
    EXPECT_EQ(std::isnan(call.t.out.read().at(0, 4, 0, 0)), nan) << length;
    EXPECT_TRUE(call.t.out.surroundings_intact() && call.t.lse.surroundings_intact());
  }
  for (const std::vector<double>& hole : {std::vector{-3., 1.}, {1., -1.}, {1., 2e9}, {2e9, 1.}}) {
    RefusedAttention call(ctx());
    const TestTensor table = tensor({1, 2}, {0., 1.}), lengths = tensor({1}, {3.});
    const TestTensor holes = tensor({1, 2}, hole);
    paged(call.t.args, table, lengths, holes);
    attention(ctx(), call.t.args);
    EXPECT_FALSE(std::isnan(call.t.out.read().at(0, 4, 0, 0))) << hole[0] << " " << hole[1];
    EXPECT_TRUE(call.t.out.surroundings_intact() && call.t.lse.surroundings_intact());
  }
  for (const auto& [q_at, k_at] : {std::pair{std::vector{0., 5.}, std::vector{0., 900.}},
                                   {{-3., 900.}, {0., 6.}},
                                   {{4., 2.}, {6., -1.}}}) {
    RefusedAttention call(ctx());
    const TestTensor q_offsets = tensor({2}, q_at), k_offsets = tensor({2}, k_at);
    ragged(call.t.args, q_offsets, k_offsets);
    attention(ctx(), call.t.args);
    EXPECT_TRUE(call.t.out.surroundings_intact() && call.t.lse.surroundings_intact());
  }
  // A pattern too small for the sequence: queries outside of it see nothing.
  RefusedAttention call(ctx());
  const TestTensor q_offsets = tensor({2}, {0., 5.}), k_offsets = tensor({2}, {0., 6.});
  ragged(call.t.args, q_offsets, k_offsets);
  call.t.args.mask = Mask::blocks(BlockMask::local(2, 2, 2, 1));
  attention(ctx(), call.t.args);
  EXPECT_EQ(call.t.lse.read().at(0, 0, 4), -INFINITY);
  EXPECT_EQ(call.t.out.read().at(0, 4, 0, 0), 0.0);
}

}  // namespace
}  // namespace tessera::test
