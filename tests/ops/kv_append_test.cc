#include "tessera/kv_append.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "reference/kv_append.h"
#include "reference/rounding.h"
#include "reference/test_tensor.h"
#include "support/compare.h"
#include "support/devices.h"
#include "support/refusal.h"

namespace tessera::test {
namespace {

struct KvAppendCase {
  std::int64_t tokens = 7, heads = 3, dim = 5, pages = 4, page_size = 3;
  DType dtype = DType::f32;
  Layout layout = Layout::contiguous;
  std::optional<DType> stored{};  // of the pages, where it is not dtype

  DType stored_dtype() const { return stored.value_or(dtype); }

  std::string text() const {
    return std::to_string(tokens) + " tokens, " + std::to_string(heads) + " x " +
           std::to_string(dim) + " into " + std::to_string(pages) + " x " +
           std::to_string(page_size) + " " + std::string(name(dtype)) + " as " +
           std::string(name(stored_dtype())) + " " + to_string(layout);
  }
};

// Distinct slots in scattered order: the stride has no common divisor with their number.
Array scattered_slots(const KvAppendCase& c) {
  const std::int64_t slots = c.pages * c.page_size;
  std::int64_t stride = slots / 2 + 1;
  while (std::gcd(stride, slots) != 1) ++stride;
  Array result({c.tokens});
  for (std::int64_t i = 0; i < c.tokens; ++i) {
    result.at(i) = static_cast<double>((i * stride + 2) % slots);
  }
  return result;
}

struct KvAppendCall {
  TestTensor k, v, slots, k_pages, v_pages;
  KvAppendArgs args;

  KvAppendCall(Context& ctx, const KvAppendCase& c) : KvAppendCall(ctx, c, scattered_slots(c)) {}
  KvAppendCall(Context& ctx, const KvAppendCase& c, const Array& slot_values)
      : k(ctx, random_normal({c.tokens, c.heads, c.dim}, 1), c.dtype, c.layout),
        v(ctx, random_normal({c.tokens, c.heads, c.dim}, 2), c.dtype, c.layout),
        slots(ctx, slot_values, DType::i32),
        k_pages(TestTensor::poisoned(ctx, {c.pages, c.page_size, c.heads, c.dim}, c.stored_dtype(),
                                     c.layout)),
        v_pages(TestTensor::poisoned(ctx, {c.pages, c.page_size, c.heads, c.dim}, c.stored_dtype(),
                                     c.layout)),
        args{k, v, slots, k_pages, v_pages} {}
};

// Tokens must match bit for bit, once rounded to the dtype of the pages, and everything that no
// slot names must stay poisoned.
void check_kv_append(Context& ctx, const KvAppendCase& c) {
  SCOPED_TRACE(c.text());
  KvAppendCall call(ctx, c);
  const Array before = call.k_pages.read();
  kv_append(ctx, call.args);
  const Array slots = call.slots.read();
  const auto expected = [&](const TestTensor& x) {
    return reference::kv_append(reference::rounded(x.read(), c.stored_dtype()), slots, before);
  };
  EXPECT_TRUE(identical(call.k_pages.read(), expected(call.k)));
  EXPECT_TRUE(identical(call.v_pages.read(), expected(call.v)));
  EXPECT_TRUE(call.k_pages.surroundings_intact() && call.v_pages.surroundings_intact());
  EXPECT_TRUE(call.k.untouched() && call.v.untouched() && call.slots.untouched());
}

class KvAppendTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, KvAppendTest, testing::ValuesIn(test_devices()), device_name);

TEST_P(KvAppendTest, OddSizesDtypesAndLayouts) {
  for (DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (Layout layout : kLayouts) {
      check_kv_append(ctx(), {.dtype = dtype, .layout = layout});
      check_kv_append(ctx(), {.tokens = 1,
                              .heads = 1,
                              .dim = 1,
                              .pages = 1,
                              .page_size = 1,
                              .dtype = dtype,
                              .layout = layout});
      check_kv_append(ctx(), {.tokens = 113,
                              .heads = 5,
                              .dim = 80,
                              .pages = 239,
                              .page_size = 1,
                              .dtype = dtype,
                              .layout = layout});
      check_kv_append(ctx(), {.tokens = 64,
                              .heads = 2,
                              .dim = 64,
                              .pages = 1,
                              .page_size = 64,
                              .dtype = dtype,
                              .layout = layout});
    }
  }
}

TEST_P(KvAppendTest, F32IsStoredAsF16OrBf16OnTheCpu) {
  for (DType stored : {DType::f16, DType::bf16}) {
    for (Layout layout : kLayouts) {
      if (!GetParam().is_cpu()) {
        KvAppendCall call(ctx(), {.layout = layout, .stored = stored});
        EXPECT_TRUE(refuses([&] { kv_append(ctx(), call.args); },
                            "kv_append: k_pages is " + std::string(name(stored)) +
                                " and k is f32; on a GPU both must be of one dtype",
                            ErrorCode::unsupported));
        EXPECT_TRUE(call.k_pages.untouched() && call.v_pages.untouched());
        continue;
      }
      check_kv_append(ctx(), {.layout = layout, .stored = stored});
      check_kv_append(ctx(), {.tokens = 113,
                              .heads = 5,
                              .dim = 33,
                              .pages = 239,
                              .page_size = 1,
                              .layout = layout,
                              .stored = stored});
    }
  }
}

// As in a model: k and v are parts of the rows of one product, [tokens, heads, 3, dim] in GPT-NeoX
// or [tokens, heads + 2 kv_heads, dim] in Llama.
TEST_P(KvAppendTest, KeysAndValuesAreViewsOfOneRow) {
  const TestTensor qkv(ctx(), random_normal({9, 4, 3, 16}, 3), DType::f32);
  const TestTensor wide(ctx(), random_normal({9, 12, 16}, 4), DType::f32);
  const struct {
    Tensor k, v;
  } views[] = {{qkv.view().select(2, 1), qkv.view().select(2, 2)},
               {wide.view().slice(1, 4, 8), wide.view().slice(1, 8, 12)}};
  for (const auto& [k, v] : views) {
    KvAppendCall call(ctx(), {.tokens = 9, .heads = 4, .dim = 16});
    call.args.k = k;
    call.args.v = v;
    kv_append(ctx(), call.args);
    const Array k_pages = call.k_pages.read(), v_pages = call.v_pages.read(),
                slots = call.slots.read();
    const Array rows = k.data == views[0].k.data ? qkv.read() : wide.read();
    for (std::int64_t token = 0; token < 9; ++token) {
      const auto slot = static_cast<std::int64_t>(slots.at(token));
      for (std::int64_t h = 0; h < 4; ++h) {
        for (std::int64_t d = 0; d < 16; ++d) {
          const bool neox = rows.shape.size() == 4;
          EXPECT_EQ(k_pages.at(slot / 3, slot % 3, h, d),
                    neox ? rows.at(token, h, 1, d) : rows.at(token, 4 + h, d));
          EXPECT_EQ(v_pages.at(slot / 3, slot % 3, h, d),
                    neox ? rows.at(token, h, 2, d) : rows.at(token, 8 + h, d));
        }
      }
    }
  }
}

TEST_P(KvAppendTest, SlotsOutOfRange) {
  for (const double bad : {-1.0, 12.0, 2000000000.0}) {
    Array slots = scattered_slots({});
    slots.at(4) = bad;
    KvAppendCall call(ctx(), {}, slots);
    if (GetParam().is_cpu()) {
      EXPECT_TRUE(refuses([&] { kv_append(ctx(), call.args); },
                          "kv_append: slots[4] is " +
                              std::to_string(static_cast<std::int64_t>(bad)) +
                              "; 4 pages of 3 tokens have the slots 0..11"));
      EXPECT_TRUE(call.k_pages.untouched() && call.v_pages.untouched());
    } else {  // that token is dropped, the others are written
      const Array before = call.k_pages.read();
      kv_append(ctx(), call.args);
      Array k = call.k.read(), kept({6, 3, 5}), kept_slots({6});
      for (std::int64_t i = 0, to = 0; i < 7; ++i) {
        if (i == 4) continue;
        kept_slots.at(to) = slots.at(i);
        std::copy_n(k.data.begin() + i * 15, 15, kept.data.begin() + to++ * 15);
      }
      EXPECT_TRUE(identical(call.k_pages.read(), reference::kv_append(kept, kept_slots, before)));
      EXPECT_TRUE(call.k_pages.surroundings_intact() && call.v_pages.surroundings_intact());
    }
  }
}

TEST_P(KvAppendTest, TwoTokensInOneSlotAreRefused) {
  if (!GetParam().is_cpu()) GTEST_SKIP() << "slots are not read on a GPU";
  Array slots = scattered_slots({});
  slots.at(6) = slots.at(1);
  KvAppendCall call(ctx(), {}, slots);
  EXPECT_TRUE(refuses([&] { kv_append(ctx(), call.args); },
                      "kv_append: slots names " +
                          std::to_string(static_cast<std::int64_t>(slots.at(1))) +
                          " more than once; each token needs a slot of its own"));
  EXPECT_TRUE(call.k_pages.untouched() && call.v_pages.untouched());
}

TEST_P(KvAppendTest, RefusesWrongArguments) {
  const std::vector<Refusal<KvAppendArgs>> refusals{
      {[](KvAppendArgs& a) { a.k = {}; }, "kv_append: k was not given"},
      {[](KvAppendArgs& a) { a.k = a.k.select(0, 0); },
       "kv_append: k must be [tokens, kv_heads, dim], got f32[3, 5]"},
      {[](KvAppendArgs& a) { a.v = a.v.slice(0, 0, 6); },
       "kv_append: v must have the shape of k, f32[7, 3, 5], got f32[6, 3, 5]"},
      {[](KvAppendArgs& a) { a.slots = a.slots.slice(0, 0, 6); },
       "kv_append: slots must have shape [7], got i32[6]"},
      {[](KvAppendArgs& a) { a.k_pages.dtype = DType::u8; },
       "kv_append: k_pages is u8; accepted: f32, f16, bf16, f8e4m3, i8"},
      {[](KvAppendArgs& a) { a.v_pages.dtype = DType::f16; },
       "kv_append: v_pages is f16; accepted: f32"},
      {[](KvAppendArgs& a) {
         a.k_pages = a.k_pages.view({4, 3, 5, 3});
       },
       "kv_append: k_pages must be [pages, page_size, 3, 5] for k f32[7, 3, 5], got "
       "f32[4, 3, 5, 3]"},
      {[](KvAppendArgs& a) { a.v_pages = a.v_pages.slice(0, 0, 3); },
       "kv_append: v_pages must have the shape of k_pages, f32[4, 3, 3, 5], got f32[3, 3, 3, 5]"},
      {[](KvAppendArgs& a) { a.v_pages = a.k_pages; },
       "kv_append: k_pages overlaps the memory of v_pages"},
  };
  for (const auto& [spoil, text, code] : refusals) {
    KvAppendCall call(ctx(), {});
    spoil(call.args);
    EXPECT_TRUE(refuses([&] { kv_append(ctx(), call.args); }, text, code));
    EXPECT_TRUE(call.k_pages.untouched() && call.v_pages.untouched());
  }
}

TEST_P(KvAppendTest, NoTokensAreNoWorkAndCallsAreTraced) {
  KvAppendCall none(ctx(), {.tokens = 0});
  kv_append(ctx(), none.args);
  EXPECT_TRUE(none.k_pages.untouched() && none.v_pages.untouched());
  KvAppendCall call(ctx(), {});
  kv_append(ctx(), call.args);
  EXPECT_EQ(ctx().trace().calls("kv_append", GetParam().is_cpu() ? "cpu" : "cuda"), 2);
}

}  // namespace
}  // namespace tessera::test
