// prepare(): the layout that this device's kernels are fastest on, made once.
#include "core/build_config.h"
#include "core/checked.h"
#include "cpu/linear/weight_tiles.h"
#include "cuda/linear/layout/repack.h"
#include "cuda/linear/layout/tile_sizes.h"
#include "ops/check_weight.h"
#include "ops/op_scope.h"
#include "tessera/quant.h"

namespace tessera {
namespace {

// Makes room for a weight's tensors, one after the other in one buffer.
class Storage {
 public:
  explicit Storage(Device device) : device_(device) {}
  // A contiguous tensor [rows, cols]; its data is set by allocate().
  void add(Tensor& tensor, DType dtype, std::int64_t rows, std::int64_t cols) {
    tensor = Tensor(nullptr, dtype, {rows, cols}, device_);
    offsets_[count_] = bytes_;
    tensors_[count_++] = &tensor;
    bytes_ = checked_add(
        bytes_, checked_align(checked_mul(tensor.numel(), size_of(dtype)), Buffer::kAlignment));
  }
  Buffer allocate() {
    Buffer buffer(bytes_, device_);
    for (int i = 0; i < count_; ++i) {
      tensors_[i]->data = static_cast<char*>(buffer.data()) + offsets_[i];
    }
    return buffer;
  }

 private:
  Device device_;
  Tensor* tensors_[4] = {};
  std::int64_t offsets_[4] = {};
  int count_ = 0;
  std::int64_t bytes_ = 0;
};

// `to` is contiguous.
void copy_rows(Context& ctx, const Tensor& from, const Tensor& to) {
  const std::int64_t row_bytes = from.shape[1] * size_of(from.dtype);
  const auto copy = [&](std::int64_t row, std::int64_t bytes) {
    copy_bytes(ctx, to.ptr<char>() + row * row_bytes, to.device,
               from.ptr<char>() + row * from.strides[0] * size_of(from.dtype), from.device, bytes);
  };
  if (from.is_contiguous()) return copy(0, from.bytes());
  for (std::int64_t row = 0; row_bytes > 0 && row < from.shape[0]; ++row) copy(row, row_bytes);
}

PackedWeight tiled(Context& ctx, const Weight& weight) {
  const cpu::TileSizes sizes =
      cpu::tile_sizes(weight.format, weight.group, weight.out_features, weight.in_features);
  const std::int64_t scales = checked_mul(sizes.scales, cpu::kWeightTileN);
  PackedWeight result{.weight = weight, .storage = {}};
  Storage storage(ctx.device());
  result.weight.layout = WeightLayout::cpu_tiles;
  storage.add(result.weight.data, weight.data.dtype, sizes.tiles, sizes.bytes);
  storage.add(result.weight.scales, weight.scales.dtype, sizes.tiles, scales);
  if (weight.zeros.defined())
    storage.add(result.weight.zeros, weight.zeros.dtype, sizes.tiles, scales);
  result.storage = storage.allocate();
  cpu::write_tiles(ctx, weight, result.weight);
  return result;
}

PackedWeight tiled_for_gpu(Context& ctx, const Weight& weight) {
  const cuda::TileSizes sizes = cuda::tile_sizes(info(weight.format).bits, weight.group,
                                                 weight.out_features, weight.in_features);
  PackedWeight result{.weight = weight, .storage = {}};
  Storage storage(ctx.device());
  result.weight.layout = WeightLayout::cuda_tiles;
  storage.add(result.weight.data, weight.data.dtype, sizes.tiles, sizes.tile_bytes);
  storage.add(result.weight.scales, cuda::tile_scale_dtype(weight.format), sizes.tiles,
              sizes.tile_scales);
  if (weight.zeros.defined())
    storage.add(result.weight.zeros, weight.zeros.dtype, sizes.tiles, sizes.tile_scales);
  storage.add(result.weight.row_scales, DType::f32, 1, sizes.padded_n);
  result.storage = storage.allocate();
  if constexpr (kHaveCuda) cuda::repack(ctx, weight, result.weight);
  return result;
}

PackedWeight copied(Context& ctx, const Weight& weight) {
  PackedWeight result{.weight = weight, .storage = {}};
  Storage storage(ctx.device());
  const Tensor* const from[] = {&weight.data, &weight.scales, &weight.zeros};
  Tensor* const to[] = {&result.weight.data, &result.weight.scales, &result.weight.zeros};
  for (int i = 0; i < 3; ++i) {
    if (from[i]->defined())
      storage.add(*to[i], from[i]->dtype, from[i]->shape[0], from[i]->shape[1]);
  }
  result.storage = storage.allocate();
  for (int i = 0; i < 3; ++i) {
    if (from[i]->defined()) copy_rows(ctx, *from[i], *to[i]);
  }
  return result;
}

}  // namespace

PackedWeight prepare(Context& ctx, const Weight& weight) {
  const OpScope op(ctx, "prepare");
  check_weight(op, kWeightNames, weight);
  const bool on_cpu = ctx.device().is_cpu();
  if (on_cpu) check_weight_values(op, "weight", weight);
  const bool empty = weight.out_features == 0 || weight.in_features == 0;
  const bool cpu_tiles = on_cpu && cpu::has_tiles(weight.format, weight.group);
  const bool cuda_tiles = !on_cpu && !empty && cuda::has_tiles(weight.format, weight.group);
  PackedWeight result;
  op.run([&] { return "weight " + to_string(weight); },
         [&] {
           result = cpu_tiles    ? tiled(ctx, weight)
                    : cuda_tiles ? tiled_for_gpu(ctx, weight)
                                 : copied(ctx, weight);
           if (cpu_tiles || cuda_tiles) return on_cpu ? "cpu.tiles" : "cuda.tiles";
           return on_cpu ? "cpu.copy" : "cuda.copy";
         },
         [&] {
           return OpCost{weight.bytes() + result.weight.bytes(), 0};
         });
  return result;
}

}  // namespace tessera
