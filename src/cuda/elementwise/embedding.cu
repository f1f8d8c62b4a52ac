// Rows of a table, by index: one block for each id. Packed rows are decoded as they are read. An id
// out of range cannot be reported from here without waiting for the device; its row becomes NaN,
// which later ops pass on.
#include "cuda/elementwise/embedding.h"

#include "core/drawn_ids.h"
#include "core/rows.h"
#include "cuda/linear/layout/tile_decoder.cuh"
#include "cuda/quant/codec.cuh"
#include "cuda/runtime/launch.h"
#include "cuda/tile/element.cuh"

namespace tessera::cuda {
namespace {

constexpr int kThreads = 256;

struct Ids {
  Rows rows;
  DType dtype;
  std::int64_t table_rows;
  DrawnIds drawn;
  std::int64_t first_row, all_rows;

  // The table row of output row i; -1 if it is in no table, -2 if it is in another process's table.
  __device__ std::int64_t at(std::int64_t i) const {
    const void* row = dtype == DType::i32
                          ? static_cast<const void*>(rows.row<std::int32_t>(i / rows.cols()))
                          : static_cast<const void*>(rows.row<std::int64_t>(i / rows.cols()));
    const std::int64_t id = drawn.id(index_at(row, dtype, i % rows.cols()));
    const std::int64_t own = id - first_row;
    if (own >= 0 && own < table_rows) return own;
    return id >= 0 && id < all_rows ? -2 : -1;
  }
};

__device__ void store(void* to, DType dtype, std::int64_t i, float value) {
  if (dtype == DType::f32) {
    static_cast<float*>(to)[i] = value;
  } else if (dtype == DType::f16) {
    static_cast<Half*>(to)[i] = from_f32<Half>(value);
  } else {
    static_cast<BFloat16*>(to)[i] = from_f32<BFloat16>(value);
  }
}

// decoder(row, k) is a number of the table as f32. The kernel branches on the dtype of out, so one
// kernel for each kind of table is enough.
template <typename Decoder>
__global__ void __launch_bounds__(kThreads)
    decode_rows(Ids ids, Decoder decoder, Rows out, DType dtype) {
  for (std::int64_t i = blockIdx.x; i < out.rows(); i += gridDim.x) {
    const std::int64_t id = ids.at(i);
    void* to = out.row<void>(i);
    for (std::int64_t c = threadIdx.x; c < out.cols(); c += kThreads) {
      store(to, dtype, c, id == -1 ? nanf("") : id < 0 ? 0.f : decoder(id, c));
    }
  }
}

}  // namespace

void embedding(Context& ctx, const EmbeddingArgs& args) {
  if (args.out.numel() == 0) return;
  const Ids ids{Rows(args.ids),       args.ids.dtype, args.table.out_features,
                DrawnIds(args.drawn), args.first_row, args.all_rows};
  const Rows out(args.out);
  const Launch launch(ctx, "embedding");  // does not overlap: AppendAttentionArgs::settled
  const auto run = [&](auto decoder) {
    launch(decode_rows<decltype(decoder)>, {.blocks = out.rows(), .threads = kThreads}, ids,
           decoder, out, args.out.dtype);
  };
  if (args.table.layout == WeightLayout::cuda_tiles) {
    run(TileDecoder(args.table));
  } else {
    with_decoder(args.table, run);
  }
}

}  // namespace tessera::cuda
