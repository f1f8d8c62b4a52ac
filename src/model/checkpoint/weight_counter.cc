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

// The size of packed weights once prepare() has laid them out on a GPU: rows and columns are padded
// to whole tiles, and every row has one more number (cuda/linear/tile_layout.h).
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

// A tensor that the file stores unaligned is copied on the CPU, and the copy stays.
void WeightCounter::count_copy(const StoredTensor& stored) {
  if (ctx_.device().is_cpu() && !is_aligned(stored))
    taken_ = checked_add(taken_, tensor_bytes(stored));
}

WeightCounter::Share::Share(std::int64_t out_features, std::int64_t in_features,
                            const WeightSlice& slice)
    : out(out_features),
      in(in_features),
      rows(slice.rows.size(out_features)),
      columns(slice.columns.size(in_features)) {}

std::int64_t WeightCounter::Share::of(std::int64_t bytes) const {
  if ((rows == out && columns == in) || out == 0 || in == 0) return bytes;
  return static_cast<std::int64_t>(static_cast<double>(bytes) * static_cast<double>(rows) /
                                   static_cast<double>(out) * static_cast<double>(columns) /
                                   static_cast<double>(in));
}

// On the CPU a view of the file, whose pages the system may drop at any time; columns are copied.
void WeightCounter::count_dense(const StoredTensor& stored, const Share& share) {
  count_copy(stored);
  if (ctx_.device().is_cpu()) {
    const std::int64_t bytes = share.of(tensor_bytes(stored));
    bytes_ = checked_add(bytes_, bytes);
    if (share.columns != share.in) taken_ = checked_add(taken_, bytes);
    return;
  }
  take(checked_mul(share.of(checked_product(stored.shape)), size_of(dtype_)));
  if (stored.dtype != stored_name(dtype_)) {
    staged_ = std::max(staged_, share.of(tensor_bytes(stored)));
  }
}

// As large on the device as in the file, up to the padding of its layout there.
void WeightCounter::count_stored(const std::string& module, const Share& share) {
  const std::int64_t bytes = share.of(stored_bytes(module));
  for (const StoredTensor* part : packed_parts(module)) count_copy(*part);
  take(ctx_.device().is_cpu() ? bytes : in_tiles(bytes, share.rows, share.columns));
  if (!ctx_.device().is_cpu()) staged_ = std::max(staged_, bytes);
}

// quantize() makes a copy that prepare() reads; on a GPU it needs the matrix as stored and in f32.
void WeightCounter::count_packed(const std::string& module, const Share& share) {
  const std::int64_t whole =
      naming(module, [&] { return packed_bytes(*options_.pack, share.out, share.in); });
  const std::int64_t bytes = share.of(whole);
  take(ctx_.device().is_cpu() ? bytes : in_tiles(bytes, share.rows, share.columns));
  std::int64_t scratch = whole;
  const StoredTensor& stored = checkpoint_->at(module + ".weight");
  count_copy(stored);
  if (!ctx_.device().is_cpu()) {
    staged_ = std::max(staged_, tensor_bytes(stored));
    scratch = checked_add(scratch, checked_mul(checked_mul(share.out, share.in), sizeof(float)));
  }
  scratch_ = std::max(scratch_, scratch);
}

void WeightCounter::count(const std::string& module, bool packs, const Share& share) {
  if (is_packed(module)) return count_stored(module, share);
  const StoredTensor& stored = checkpoint_->at(module + ".weight");
  packs ? count_packed(module, share) : count_dense(stored, share);
}

Weight WeightCounter::linear(const std::string& module, std::int64_t out, std::int64_t in,
                             const WeightSlice& slice) {
  count(module, packs_layer(module, module), Share(out, in, slice));
  return add_layer(module, {});
}

Tensor WeightCounter::vector(const std::string& name, std::int64_t n, const Range& part) {
  count_dense(checkpoint_->at(name), Share(n, 1, {.rows = part}));
  return Tensor(nullptr, dtype_, {part.size(n)}, ctx_.device());
}

Weight WeightCounter::table(const std::string& module, const std::string& head, std::int64_t rows,
                            std::int64_t n, const Range& part) {
  count(module, options_.pack_embedding && packs_layer(module, head),
        Share(rows, n, {.rows = part}));
  Weight table;
  table.out_features = rows;
  table.in_features = n;
  return table;
}

Weight WeightCounter::tied_head(const std::string& module, const std::string& head,
                                const Weight& table, const Range& part) {
  const bool packs = packs_layer(module, head);
  if (packs && !is_packed(module) && !options_.pack_embedding) {
    count_packed(module, Share(table.out_features, table.in_features, {.rows = part}));
  }
  return add_layer(module, {});
}

}  // namespace tessera::model
