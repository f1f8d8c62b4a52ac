// Copies rows of a dense table by index. If the dtypes differ, each row is converted through
// vectors of f32.
#include "cpu/elementwise/embedding.h"

#include <algorithm>

#include "core/drawn_ids.h"
#include "core/rows.h"
#include "core/type_switch.h"
#include "cpu/elementwise/for_each_row.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/elementwise/embedding.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/simd/copy_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

template <typename Index, typename From, typename To>
void copy_rows(Context& ctx, const EmbeddingArgs& args) {
  const Rows ids(args.ids), table(args.table.data), out(args.out);
  const DrawnIds drawn(args.drawn);
  const std::size_t n = static_cast<std::size_t>(table.cols());
  for_each_row(ctx.pool(), out.rows(), out.cols(), [&](std::int64_t i, int) HWY_ATTR {
    const std::int64_t id =
        drawn.id(ids.row<const Index>(i / ids.cols())[i % ids.cols()]) - args.first_row;
    if (id < 0 || id >= table.rows()) {  // of another process
      std::fill_n(out.row<To>(i), n, To{});
      return;
    }
    copy_row(table.row<const From>(id), out.row<To>(i), n);
  });
}

void embedding(Context& ctx, const EmbeddingArgs& args) {
  with_index_type(args.ids.dtype, [&](auto index) {
    with_float_type(args.table.data.dtype, [&](auto from) {
      with_float_type(args.out.dtype, [&](auto to) {
        copy_rows<decltype(index), decltype(from), decltype(to)>(ctx, args);
      });
    });
  });
}

}  // namespace
}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(embedding);

void embedding(Context& ctx, const EmbeddingArgs& args) {
  if (args.table.format != Format::dense) return packed_embedding(ctx, args);
  HWY_DYNAMIC_DISPATCH(embedding)(ctx, args);
}

}  // namespace tessera::cpu
#endif
