#include "model/checkpoint/random_weights.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/philox.h"
#include "model/architectures/registry.h"
#include "model/checkpoint/weight_source.h"
#include "model/model_dtype.h"

namespace tessera::model {
namespace {

// Normal enough: sums of four uniform numbers, with the deviation that language models start
// training from. With it, no layer of any size leaves the range of f16 after a norm.
std::vector<float> make_noise(std::int64_t count) {
  constexpr float kDeviation = 0.02f;
  constexpr float kSumDeviation = 0.57735f;  // of four uniform numbers: sqrt(4 / 12)
  std::vector<float> noise(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < noise.size(); ++i) {
    float sum = -2.f;
    for (const std::uint32_t word : philox(1, {static_cast<std::uint32_t>(i), 0, 0, 0})) {
      sum += static_cast<float>(word) * 0x1p-32f;
    }
    noise[i] = sum * (kDeviation / kSumDeviation);
  }
  return noise;
}

// Every tensor is cut from one block of noise, repeated without end. The block's length is prime,
// so that rows do not repeat in any regular way.
class RandomWeights final : public WeightSource {
 public:
  RandomWeights(Context& ctx, DType dense_dtype, const std::optional<QuantizeOptions>& pack)
      : WeightSource(ctx), dtype_(dense_dtype), pack_(pack) {
    constexpr std::int64_t kBlock = 1'048'573;  // the largest prime below 2^20
    noise_ = converted(make_noise(kBlock));
  }

  // Every module that an architecture asks for exists.
  bool has_module(std::string_view) const override { return true; }
  bool shares_table(const std::string&, const std::string&) override { return true; }

  // All processes draw the same whole matrix, and each keeps its slice.
  Weight linear(const std::string& module, std::int64_t out, std::int64_t in,
                const WeightSlice& slice) override {
    Buffer buffer = noise(out, in);
    if (packs()) {
      return add_packed(module, buffer.tensor(dtype_, {out, in}), slice);
    }
    const Tensor matrix = kept(buffer, out, in, slice);
    keep(std::move(buffer));
    return add_layer(module, Weight::dense(matrix));
  }

  Tensor vector(const std::string& name, std::int64_t n, const Range& part) override {
    // A norm multiplies by its weight: by one, as before training.
    const bool is_norm = name.ends_with(".weight");
    Buffer buffer =
        is_norm ? converted(std::vector<float>(static_cast<std::size_t>(n), 1.f)) : noise(1, n);
    const Tensor tensor =
        buffer.tensor(dtype_, {n}).slice(0, part.begin, part.begin + part.size(n));
    keep(std::move(buffer));
    return tensor;
  }

  Weight table(const std::string&, const std::string&, std::int64_t rows, std::int64_t n,
               const Range& part) override {
    Buffer buffer = noise(rows, n);
    const Tensor tensor = kept(buffer, rows, n, {.rows = part});
    keep(std::move(buffer));
    return Weight::dense(tensor);
  }

  Weight tied_head(const std::string& module, const std::string&, const Weight& table,
                   const Range&) override {
    return packs() ? add_packed(module, table.data, {}) : add_layer(module, table);
  }

  void finish() override { ctx_.synchronize(); }  // from here on any Context may use the model

 private:
  // The slice of a matrix, in a buffer of its own size that replaces the whole one.
  Tensor kept(Buffer& whole, std::int64_t rows, std::int64_t n, const WeightSlice& slice) {
    const Tensor matrix = whole.tensor(dtype_, {rows, n});
    if (slice.is_all(rows, n)) return matrix;
    Buffer columns;
    const Tensor part = sliced(ctx_, matrix, slice, columns);
    Buffer own(part.bytes(), ctx_.device());
    copy_bytes(ctx_, own.data(), own.device(), part.data, part.device, part.bytes());
    ctx_.synchronize();  // before the whole goes
    whole = std::move(own);
    return whole.tensor(dtype_, {part.size(0), part.size(1)});
  }

  bool packs() const { return pack_ && pack_->format != Format::dense; }

  // Scales may depend on the whole matrix: it is packed first, and then cut.
  Weight add_packed(const std::string& module, const Tensor& matrix, const WeightSlice& slice) {
    PackedWeight packed = naming(module, [&] { return quantize(ctx_, matrix, *pack_); });
    return add_layer(module, prepared(module, sliced(ctx_, module, std::move(packed), slice)));
  }

  void keep(Buffer buffer) {
    bytes_ += buffer.bytes();
    buffers_.push_back(std::move(buffer));
  }

  // Numbers from the host, on the device, in the dtype of dense weights.
  Buffer converted(const std::vector<float>& values) {
    const auto n = static_cast<std::int64_t>(values.size());
    const Buffer from(DType::f32, {1, n}, ctx_.device());
    copy_bytes(ctx_, from.data(), from.device(), values.data(), Device::cpu(), from.bytes());
    Buffer to(dtype_, {1, n}, ctx_.device());
    dequantize(ctx_, Weight::dense(from.tensor(DType::f32, {1, n})), to.tensor(dtype_, {1, n}));
    ctx_.synchronize();  // before `from` goes
    return to;
  }

  // The next rows * n numbers of the endless noise.
  Buffer noise(std::int64_t rows, std::int64_t n) {
    Buffer to(dtype_, {rows, n}, ctx_.device());
    for (std::int64_t done = 0; done < to.bytes();) {
      const std::int64_t bytes = std::min(to.bytes() - done, noise_.bytes() - at_);
      copy_bytes(ctx_, static_cast<char*>(to.data()) + done, to.device(),
                 static_cast<const char*>(noise_.data()) + at_, noise_.device(), bytes);
      done += bytes;
      at_ = (at_ + bytes) % noise_.bytes();
    }
    return to;
  }

  DType dtype_;  // of dense weights
  std::optional<QuantizeOptions> pack_;
  Buffer noise_;
  std::int64_t at_ = 0;  // byte of noise_ that comes next
};

}  // namespace

std::unique_ptr<Model> make_random_model(Context& ctx, const ModelConfig& config,
                                         const RandomModelOptions& options) {
  const DType dtype = model_dtype(ctx, config, options.dtype);
  RandomWeights weights(ctx, ctx.device().is_cpu() ? config.stored_dtype : dtype, options.pack);
  weights.set_ranks(options.tensor_parallel);
  weights.set_context_ranks(options.context_parallel);
  weights.set_fuses_layers(options.fuse_layers);
  return make_model(config, dtype, weights);
}

}  // namespace tessera::model
