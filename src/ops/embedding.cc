#include "tessera/embedding.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/drawn_ids.h"
#include "core/rows.h"
#include "core/type_switch.h"
#include "cpu/elementwise/embedding.h"
#include "cuda/elementwise/embedding.h"
#include "ops/check_tiles.h"
#include "ops/op_scope.h"

namespace tessera {
namespace {

constexpr WeightNames kTableNames{"table", "table.data", "table.scales", "table.zeros",
                                  "table.row_scales"};

void check_embedding(const OpScope& op, const EmbeddingArgs& args) {
  const Tensor &ids = args.ids, &out = args.out;
  const Weight& table = args.table;
  op.input("ids", ids, {DType::i32, DType::i64});
  check_weight_for(op, kTableNames, table, ids.device);
  op.output("out", out, {DType::f32, DType::f16, DType::bf16});
  if (args.drawn.defined()) {
    op.input("drawn", args.drawn, {DType::i32});
    op.require(args.drawn.rank == 1 && args.drawn.is_contiguous(),
               "drawn must be contiguous and have one dimension, got {}", args.drawn);
    op.no_overlap("out", out, "drawn", args.drawn);
  }
  // out has the shape of ids with the table's columns as one more dimension.
  bool fits = out.rank == ids.rank + 1 && out.size(-1) == table.in_features;
  for (int d = 0; fits && d < ids.rank; ++d) fits = out.shape[d] == ids.shape[d];
  op.require(fits, "out must have the shape of ids {} followed by the {} columns of table, got {}",
             ids, table.in_features, out);
  op.require(args.first_row >= 0 &&
                 (args.all_rows == 0 ? args.first_row == 0
                                     : args.first_row + table.out_features <= args.all_rows),
             "a table of {} rows from row {} on does not lie in {} rows", table.out_features,
             args.first_row, args.all_rows);
  op.no_overlap("out", out, "ids", ids);
  for (const Tensor* part : {&table.data, &table.scales, &table.zeros, &table.row_scales}) {
    op.no_overlap("out", out, "table", *part);
  }
}

// "table f16[50, 8]", "table nvfp4[50, 8]"
std::string table_text(const Weight& table) {
  return table.format == Format::dense ? to_string(table.data) : to_string(table);
}

// Bytes of this many rows of the table.
std::int64_t bytes_of_rows(const Weight& table, std::int64_t rows) {
  const std::int64_t all = std::max<std::int64_t>(1, table.out_features);
  return rows * (table.bytes() / all);
}

// The position of element n, counted in row-major order, such as "3, 0, 7".
std::string position_of(const Tensor& tensor, std::int64_t n) {
  std::vector<std::int64_t> position(static_cast<std::size_t>(tensor.rank));
  for (int d = tensor.rank - 1; d >= 0; --d) {
    position[d] = n % tensor.shape[d];
    n /= tensor.shape[d];
  }
  return fmt::format("{}", fmt::join(position, ", "));
}

void check_in_range(const OpScope& op, const Tensor& ids, const DrawnIds& drawn,
                    std::int64_t table_rows) {
  const Rows rows(ids);
  with_index_type(ids.dtype, [&](auto type) {
    for (std::int64_t r = 0; r < rows.rows(); ++r) {
      const auto* row = rows.row<const decltype(type)>(r);
      for (std::int64_t c = 0; c < rows.cols(); ++c) {
        const std::int64_t id = drawn.id(row[c]);
        if (id >= 0 && id < table_rows) continue;
        op.refuse(
            "ids[{}] is {}, but table has {} rows: an id must be at least 0 and less than that",
            position_of(ids, r * rows.cols() + c), id, table_rows);
      }
    }
  });
}

}  // namespace

void embedding(Context& ctx, const EmbeddingArgs& args) {
  const OpScope op(ctx, "embedding");
  check_embedding(op, args);
  if (op.only_counts(
          [&] { return ctx.device().is_cpu() ? cpu::embedding_scratch_bytes(ctx, args) : 0; })) {
    return;
  }
  op.run([&] { return "ids " + to_string(args.ids) + " table " + table_text(args.table); },
         [&] {
           check_in_range(op, args.ids, DrawnIds(args.drawn),
                          args.all_rows > 0 ? args.all_rows : args.table.out_features);
           cpu::embedding(ctx, args);
           return "cpu";
         },
         [&] {
           cuda::embedding(ctx, args);
           return "cuda";
         },
         [&] {
           const std::int64_t read = bytes_of_rows(args.table, args.ids.numel());
           return OpCost{args.ids.bytes() + read + args.out.bytes(), 0};
         });
}

}  // namespace tessera
