#include "model/checkpoint/weight_counter.h"

#include <algorithm>
#include <string_view>

#include "core/checked.h"
#include "cuda/linear/layout/tile_layout.h"
#include "tessera/quant.h"

namespace tessera::model {
namespace {

std::int64_t tensor_bytes(const StoredTensor& stored) {
  return static_cast<std::int64_t>(stored.data.size());
}

// As safetensors calls it.
std::string_view stored_name(DType dtype) {
  return dtype == DType::f16 ? "F16" : dtype == DType::bf16 ? "BF16" : "F32";
}

// What so many packed bytes become as prepare() lays them out on a GPU: rows and columns are filled
// up to whole tiles, and every row has one number more (cuda/linear/tile_layout.h).
std::int64_t in_tiles(std::int64_t bytes, std::int64_t out, std::int64_t in) {
  if (out == 0 || in == 0) return bytes;
  const std::int64_t rows = checked_align(out, cuda::kTileHeight);
  const std::int64_t columns = checked_align(in, cuda::kPair);
  const std::int64_t of_row = checked_mul((bytes + out - 1) / out, columns) / in + 1;
  return checked_mul(rows, checked_add(of_row, static_cast<std::int64_t>(sizeof(float))));
}

}  // namespace

void WeightCounter::take(std::int64_t bytes) {
  bytes_ = checked_add(bytes_, bytes);
  taken_ = checked_add(taken_, bytes);
}

std::int64_t WeightCounter::stored_bytes(const std::string& module) const {
  std::int64_t bytes = 0;
  for (const StoredTensor* part : packed_parts(module))
    bytes = checked_add(bytes, tensor_bytes(*part));
  return bytes;
}

// What the file stores unaligned is copied on the CPU, and the copy stays.
void WeightCounter::count_copy(const StoredTensor& stored) {
  if (ctx_.device().is_cpu() && !is_aligned(stored))
    taken_ = checked_add(taken_, tensor_bytes(stored));
}

// On the CPU a view of the file, whose pages the system may drop at any time.
void WeightCounter::count_dense(const StoredTensor& stored) {
  count_copy(stored);
  if (ctx_.device().is_cpu()) {
    bytes_ = checked_add(bytes_, tensor_bytes(stored));
    return;
  }
  take(checked_mul(checked_product(stored.shape), size_of(dtype_)));
  if (stored.dtype != stored_name(dtype_)) staged_ = std::max(staged_, tensor_bytes(stored));
}

// As large on the device as in the file, up to the padding of its layout there.
void WeightCounter::count_stored(const std::string& module, std::int64_t out, std::int64_t in) {
  const std::int64_t bytes = stored_bytes(module);
  for (const StoredTensor* part : packed_parts(module)) count_copy(*part);
  take(ctx_.device().is_cpu() ? bytes : in_tiles(bytes, out, in));
  if (!ctx_.device().is_cpu()) staged_ = std::max(staged_, bytes);
}

// quantize() makes a copy that prepare() reads; on a GPU it needs the matrix as stored and in f32.
void WeightCounter::count_packed(const std::string& module, std::int64_t out, std::int64_t in) {
  const std::int64_t bytes = naming(module, [&] { return packed_bytes(*options_.pack, out, in); });
  take(ctx_.device().is_cpu() ? bytes : in_tiles(bytes, out, in));
  std::int64_t scratch = bytes;
  const StoredTensor& stored = checkpoint_->at(module + ".weight");
  count_copy(stored);
  if (!ctx_.device().is_cpu()) {
    staged_ = std::max(staged_, tensor_bytes(stored));
    scratch = checked_add(scratch, checked_mul(checked_mul(out, in), sizeof(float)));
  }
  scratch_ = std::max(scratch_, scratch);
}

void WeightCounter::count(const std::string& module, bool packs, std::int64_t out,
                          std::int64_t in) {
  if (is_packed(module)) return count_stored(module, out, in);
  const StoredTensor& stored = checkpoint_->at(module + ".weight");
  packs ? count_packed(module, out, in) : count_dense(stored);
}

Weight WeightCounter::linear(const std::string& module, std::int64_t out, std::int64_t in) {
  count(module, packs_layer(module, module), out, in);
  return add_layer(module, {});
}

Tensor WeightCounter::vector(const std::string& name, std::int64_t n) {
  count_dense(checkpoint_->at(name));
  return Tensor(nullptr, dtype_, {n}, ctx_.device());
}

Weight WeightCounter::table(const std::string& module, const std::string& head, std::int64_t rows,
                            std::int64_t n) {
  count(module, options_.pack_embedding && packs_layer(module, head), rows, n);
  Weight table;
  table.out_features = rows;
  table.in_features = n;
  return table;
}

Weight WeightCounter::tied_head(const std::string& module, const std::string& head,
                                const Weight& table) {
  const bool packs = packs_layer(module, head);
  if (packs && !is_packed(module) && !options_.pack_embedding) {
    count_packed(module, table.out_features, table.in_features);
  }
  return add_layer(module, {});
}

}  // namespace tessera::model
