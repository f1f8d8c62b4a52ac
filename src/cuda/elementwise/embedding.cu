// Rows of a table, by index: one block for each id. An id out of range cannot be reported from here
// without waiting for the device; its row becomes NaN, which no later op hides.
#include "cuda/elementwise/embedding.h"

#include "core/rows.h"
#include "core/type_switch.h"
#include "cuda/runtime/launch.h"
#include "cuda/tile/element.cuh"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 256;

template <typename From, typename To>
__global__ void __launch_bounds__(kThreads)
    copy_rows(Rows ids, DType id_dtype, Rows table, Rows out) {
  for (std::int64_t i = blockIdx.x; i < out.rows(); i += gridDim.x) {
    const void* ids_row = id_dtype == DType::i32
                              ? static_cast<const void*>(ids.row<std::int32_t>(i / ids.cols()))
                              : static_cast<const void*>(ids.row<std::int64_t>(i / ids.cols()));
    const std::int64_t id = index_at(ids_row, id_dtype, i % ids.cols());
    const bool in_range = id >= 0 && id < table.rows();
    const From* from = table.row<const From>(in_range ? id : 0);
    To* to = out.row<To>(i);
    for (std::int64_t c = threadIdx.x; c < out.cols(); c += kThreads) {
      to[c] = from_f32<To>(in_range ? to_f32(from[c]) : nanf(""));
    }
  }
}

}  // namespace

void embedding(Context& ctx, const EmbeddingArgs& args) {
  if (args.out.numel() == 0) return;
  const Rows ids(args.ids), table(args.table), out(args.out);
  const Launch launch(ctx, "embedding");
  with_float_type(args.table.dtype, [&](auto from) {
    with_float_type(args.out.dtype, [&](auto to) {
      launch(copy_rows<decltype(from), decltype(to)>, {.blocks = out.rows(), .threads = kThreads},
             ids, args.ids.dtype, table, out);
    });
  });
}

}  // namespace tessera::cuda
