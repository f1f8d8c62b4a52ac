#include "model/checkpoint/weight_slice.h"

#include <utility>

#include "core/checked.h"
#include "core/fail.h"
#include "quant/codec.h"
#include "tessera/buffer.h"

namespace tessera::model {
namespace {

// Columns [begin, begin + n) of a matrix, row by row, into contiguous memory.
Tensor copied_columns(Context& ctx, const Tensor& from, std::int64_t begin, std::int64_t n,
                      void* to) {
  const std::int64_t width = size_of(from.dtype), row = from.stride(0) * width;
  for (std::int64_t r = 0; r < from.size(0); ++r) {
    copy_bytes(ctx, static_cast<char*>(to) + r * n * width, from.device,
               static_cast<const char*>(from.data) + r * row + begin * width, from.device,
               n * width);
  }
  return {to, from.dtype, {from.size(0), n}, from.device};
}

Weight packed_rows_of(const Weight& weight, const Range& rows) {
  Weight part = weight;
  const std::int64_t end = rows.begin + rows.size(weight.out_features);
  for (Tensor* tensor : {&part.data, &part.scales, &part.zeros}) {
    if (tensor->defined()) *tensor = tensor->slice(0, rows.begin, end);
  }
  part.out_features = rows.size(weight.out_features);
  return part;
}

void check_columns(const std::string& layer, const Weight& weight, std::int64_t begin,
                   std::int64_t end) {
  const bool is_last = end == weight.in_features;
  if (weight.group > 0 && (begin % weight.group != 0 || (end % weight.group != 0 && !is_last))) {
    fail(ErrorCode::unsupported,
         "{}: columns {} to {} of a {} weight would cut a block of {}; use fewer processes, or "
         "another format",
         layer, begin, end, name(weight.format), weight.group);
  }
  if (info(weight.format).bits == 4 && (begin % 2 != 0 || (end % 2 != 0 && !is_last))) {
    fail(ErrorCode::unsupported,
         "{}: columns {} to {} of a {} weight would cut a byte of two codes; use fewer processes",
         layer, begin, end, name(weight.format));
  }
}

PackedWeight packed_columns_of(Context& ctx, const std::string& layer, const PackedWeight& from,
                               const Range& columns) {
  const Weight& weight = from.weight;
  const std::int64_t begin = columns.begin, n = columns.size(weight.in_features);
  check_columns(layer, weight, begin, begin + n);
  const std::int64_t first_block = weight.group > 0 ? begin / weight.group : 0;
  const std::int64_t blocks = quant::blocks_of_row(weight.group, n);
  PackedWeight part{.weight = weight, .storage = {}};
  part.weight.in_features = n;
  struct Piece {
    Tensor* to;
    const Tensor* from;
    std::int64_t begin, n;
  };
  const Piece pieces[] = {{&part.weight.data, &weight.data, quant::row_bytes(weight.format, begin),
                           quant::row_bytes(weight.format, n)},
                          {&part.weight.scales, &weight.scales, first_block, blocks},
                          {&part.weight.zeros, &weight.zeros, first_block, blocks}};
  const auto bytes_of = [&](const Piece& piece) {
    if (!piece.from->defined()) return std::int64_t{0};
    const std::int64_t row = checked_mul(piece.n, size_of(piece.from->dtype));
    return checked_align(checked_mul(weight.out_features, row), Buffer::kAlignment);
  };
  std::int64_t bytes = 0;
  for (const Piece& piece : pieces) bytes = checked_add(bytes, bytes_of(piece));
  part.storage = Buffer(bytes, weight.data.device);
  char* at = static_cast<char*>(part.storage.data());
  for (const Piece& piece : pieces) {
    if (!piece.from->defined()) continue;
    *piece.to = copied_columns(ctx, *piece.from, piece.begin, piece.n, at);
    at += bytes_of(piece);
  }
  ctx.synchronize();  // before what was copied from goes
  return part;
}

}  // namespace

Tensor sliced(Context& ctx, const Tensor& matrix, const WeightSlice& slice, Buffer& storage) {
  const std::int64_t rows = slice.rows.size(matrix.size(0));
  const Tensor part = matrix.slice(0, slice.rows.begin, slice.rows.begin + rows);
  if (slice.columns.is_all(matrix.size(1))) return part;
  const std::int64_t n = slice.columns.size(matrix.size(1));
  storage = Buffer(matrix.dtype, {rows, n}, matrix.device);
  return copied_columns(ctx, part, slice.columns.begin, n, storage.data());
}

PackedWeight sliced(Context& ctx, const std::string& layer, PackedWeight weight,
                    const WeightSlice& slice) {
  if (!slice.rows.is_all(weight.weight.out_features)) {
    weight.weight = packed_rows_of(weight.weight, slice.rows);
  }
  if (slice.columns.is_all(weight.weight.in_features)) return weight;
  return packed_columns_of(ctx, layer, weight, slice.columns);
}

}  // namespace tessera::model
