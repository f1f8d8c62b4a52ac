// A piece of a decoder, in f16, for tests of captured graphs: ops one after the other, each on what
// the one before wrote.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/test_tensor.h"
#include "tessera/attention.h"
#include "tessera/buffer.h"
#include "tessera/context.h"
#include "tessera/linear.h"
#include "tessera/norm.h"
#include "tessera/quant.h"
#include "tessera/softmax.h"
#include "tessera/weight.h"

namespace tessera::test {

struct ChainSizes {
  std::int64_t rows, heads, keys;
};

// rms_norm -> linear (nvfp4) -> causal attention to older keys -> linear (dense) + x -> softmax
class OpChain {
 public:
  static constexpr int kInputs = 5;
  static constexpr std::int64_t kHeadDim = 64;

  OpChain(Context& ctx, const ChainSizes& sizes, std::uint64_t seed)
      : rows_(sizes.rows),
        heads_(sizes.heads),
        inputs_(ctx, random_normal({kInputs, rows_, width()}, seed), DType::f16),
        norm_(ctx, random_normal({width()}, seed + 1, 0.5), DType::f16),
        dense_(ctx, random_normal({width(), width()}, seed + 2, 0.05), DType::f16),
        keys_(ctx, random_normal({1, sizes.keys, heads_, kHeadDim}, seed + 3), DType::f16),
        values_(ctx, random_normal({1, sizes.keys, heads_, kHeadDim}, seed + 4), DType::f16),
        packed_(prepare(ctx, quantize(ctx, dense_, {.format = Format::nvfp4}).weight)),
        x_(DType::f16, {rows_, width()}, ctx.device()),
        normal_(DType::f16, {rows_, width()}, ctx.device()),
        query_(DType::f16, {rows_, width()}, ctx.device()),
        seen_(DType::f16, {rows_, width()}, ctx.device()),
        sum_(DType::f16, {rows_, width()}, ctx.device()),
        out_(DType::f16, {rows_, width()}, ctx.device()) {
    for (int i = 0; i < kInputs; ++i) {
      set_input(ctx, i);
      run(ctx);
      expected_.push_back(result(ctx));
    }
  }

  void run(Context& ctx) const {
    rms_norm(ctx, {.x = x_.tensor(), .weight = norm_, .out = normal_.tensor()});
    linear(ctx, {.x = normal_.tensor(), .weight = packed_.weight, .out = query_.tensor()});
    attention(ctx, {.q = by_heads(query_),
                    .k = keys_,
                    .v = values_,
                    .out = by_heads(seen_),
                    .mask = Mask::causal()});
    linear(ctx, {.x = seen_.tensor(),
                 .weight = Weight::dense(dense_),
                 .residual = x_.tensor(),
                 .out = sum_.tensor()});
    softmax(ctx, {.x = sum_.tensor(), .out = out_.tensor()});
  }

  // Enqueued, without the host.
  void set_input(Context& ctx, int i) const {
    const Device device = ctx.device();
    copy_bytes(ctx, x_.data(), device, inputs_.view().ptr<char>() + i * bytes(), device, bytes());
  }
  void copy_result(Context& ctx, void* to) const {
    copy_bytes(ctx, to, ctx.device(), out_.data(), ctx.device(), bytes());
  }
  // Waits.
  std::vector<char> result(Context& ctx) const {
    std::vector<char> read(static_cast<std::size_t>(bytes()));
    copy_bytes(ctx, read.data(), Device::cpu(), out_.data(), ctx.device(), bytes());
    return read;
  }

  std::int64_t bytes() const { return x_.bytes(); }
  // What the ops give for an input when they are launched one by one.
  const std::vector<char>& expected(int i) const { return expected_[static_cast<std::size_t>(i)]; }

 private:
  std::int64_t width() const { return heads_ * kHeadDim; }
  Tensor by_heads(const Buffer& buffer) const {
    return buffer.tensor(DType::f16, {1, rows_, heads_, kHeadDim});
  }

  std::int64_t rows_, heads_;
  TestTensor inputs_, norm_, dense_, keys_, values_;
  PackedWeight packed_;
  Buffer x_, normal_, query_, seen_, sum_, out_;
  std::vector<std::vector<char>> expected_;
};

// The results of many runs, gathered on the device, so that the host need not wait for each.
class ResultLog {
 public:
  ResultLog(const OpChain& chain, int runs, Device device)
      : chain_(chain), results_(runs * chain.bytes(), device) {}

  void append(Context& ctx, int input) {
    chain_.copy_result(ctx, static_cast<char*>(results_.data()) + size() * chain_.bytes());
    inputs_.push_back(input);
  }
  // How many differ from what is expected, in any bit. Waits, and starts again.
  int differing(Context& ctx) {
    std::vector<char> all(static_cast<std::size_t>(size() * chain_.bytes()));
    copy_bytes(ctx, all.data(), Device::cpu(), results_.data(), ctx.device(), std::ssize(all));
    int count = 0;
    for (std::int64_t i = 0; i < size(); ++i) {
      const std::vector<char>& expected = chain_.expected(inputs_[static_cast<std::size_t>(i)]);
      count +=
          std::equal(expected.begin(), expected.end(), all.begin() + i * chain_.bytes()) ? 0 : 1;
    }
    inputs_.clear();
    return count;
  }

 private:
  std::int64_t size() const { return std::ssize(inputs_); }

  const OpChain& chain_;
  Buffer results_;
  std::vector<int> inputs_;
};

}  // namespace tessera::test
