// Rows of a packed table, by index. A row in tiles is first copied back into the published layout,
// where it is one row of codes, scales and zero points; then it is decoded to f32 and converted.
//
//   table in tiles --read_tile_row--> one published row --decode_row--> f32 --> out
//   published table ------------------------------------^
#include <algorithm>
#include <cstddef>

#include "core/checked.h"
#include "core/drawn_ids.h"
#include "core/rows.h"
#include "core/type_switch.h"
#include "core/workspace.h"
#include "cpu/elementwise/embedding.h"
#include "cpu/elementwise/for_each_row.h"
#include "cpu/linear/weight_tiles.h"
#include "quant/codec.h"

namespace tessera::cpu {
namespace {

// Memory of one thread: f32 values of a row, then the parts of a published row, each on a boundary
// that suits every dtype.
struct RowMemory {
  std::int64_t values, data, scales, zeros;  // bytes

  explicit RowMemory(const Weight& table) {
    const bool tiled = table.layout == WeightLayout::cpu_tiles;
    const std::int64_t blocks = quant::blocks_of_row(table.group, table.in_features);
    values = aligned(checked_mul(table.in_features, sizeof(float)));
    data = tiled ? aligned(quant::row_bytes(table.format, table.in_features)) : 0;
    scales = tiled ? aligned(checked_mul(blocks, size_of(table.scales.dtype))) : 0;
    zeros = tiled && table.zeros.defined() ? aligned(blocks) : 0;
  }
  std::int64_t bytes() const { return values + data + scales + zeros; }

 private:
  static std::int64_t aligned(std::int64_t bytes) {
    return checked_align(bytes, static_cast<std::int64_t>(sizeof(std::max_align_t)));
  }
};

// A published weight of one row in this memory.
Weight one_row(const Weight& table, const RowMemory& sizes, char* memory) {
  const std::int64_t blocks = quant::blocks_of_row(table.group, table.in_features);
  Weight row = table;
  row.layout = WeightLayout::published;
  row.out_features = 1;
  row.data = Tensor(memory + sizes.values, table.data.dtype,
                    {1, quant::row_bytes(table.format, table.in_features)});
  row.scales = Tensor(memory + sizes.values + sizes.data, table.scales.dtype, {1, blocks});
  if (table.zeros.defined()) {
    row.zeros =
        Tensor(memory + sizes.values + sizes.data + sizes.scales, table.zeros.dtype, {1, blocks});
  }
  return row;
}

void decode(const Weight& table, std::int64_t id, const RowMemory& sizes, char* memory,
            float* values) {
  if (table.layout == WeightLayout::published) {
    return quant::decode_row(table, id, 0, table.in_features, values);
  }
  const Weight row = one_row(table, sizes, memory);
  read_tile_row(table, id, row);
  quant::decode_row(row, 0, 0, table.in_features, values);
}

}  // namespace

std::int64_t embedding_scratch_bytes(const Context& ctx, const EmbeddingArgs& args) {
  if (args.table.format == Format::dense) return 0;
  return checked_mul(ctx.threads(), RowMemory(args.table).bytes());
}

void packed_embedding(Context& ctx, const EmbeddingArgs& args) {
  const RowMemory sizes(args.table);
  const Rows ids(args.ids), out(args.out);
  const DrawnIds drawn(args.drawn);
  Workspace::Frame frame(ctx.workspace());
  char* scratch = frame.take<char>(embedding_scratch_bytes(ctx, args));
  with_index_type(args.ids.dtype, [&](auto index) {
    using Index = decltype(index);
    with_float_type(args.out.dtype, [&](auto type) {
      using T = decltype(type);
      for_each_row(ctx.pool(), out.rows(), out.cols(), [&](std::int64_t i, int worker) {
        const std::int64_t id =
            drawn.id(ids.row<const Index>(i / ids.cols())[i % ids.cols()]) - args.first_row;
        T* to = out.row<T>(i);
        if (id < 0 || id >= args.table.out_features) {  // of another process
          std::fill_n(to, out.cols(), T{});
          return;
        }
        char* memory = scratch + worker * sizes.bytes();
        auto* values = reinterpret_cast<float*>(memory);
        decode(args.table, id, sizes, memory, values);
        for (std::int64_t k = 0; k < out.cols(); ++k) to[k] = from_float<T>(values[k]);
      });
    });
  });
}

}  // namespace tessera::cpu
