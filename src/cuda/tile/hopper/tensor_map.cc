#include "cuda/tile/hopper/tensor_map.h"

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <bit>

#include "core/fail.h"
#include "cuda/runtime/launch.h"

namespace tessera::cuda::tile {
namespace {

constexpr std::int64_t kAlignment = 16;                      // bytes
constexpr std::int64_t kMostStride = std::int64_t{1} << 40;  // bytes
constexpr std::int64_t kMostSize = std::int64_t{1} << 31;

// The driver's function, looked up by name: a program that links the driver cannot start without
// one.
PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  constexpr unsigned kVersion = 12000;  // CUDA 12.0: the first that has it
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kVersion,
                                         cudaEnableDefault, &found),
        "asking the driver for tensor maps");
  if (found != cudaDriverEntryPointSuccess) {
    fail(ErrorCode::device, "the CUDA driver has no tensor maps; update it to one for CUDA 12.0");
  }
  return std::bit_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

// Of a tensor from `data` on, which lies as the arrays of as many numbers say.
struct Encoding {
  CUtensorMapDataType type;
  cuuint32_t rank;
  const void* data;
  const cuuint64_t *sizes, *strides;
  const cuuint32_t* box;
  CUtensorMapSwizzle swizzle;
  CUtensorMapFloatOOBfill outside = CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;  // zeros
  CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
};

CUtensorMap encode(const Encoding& of) {
  constexpr cuuint32_t kSteps[5] = {1, 1, 1, 1, 1};
  static const PFN_cuTensorMapEncodeTiled_v12000 function = encoder();
  CUtensorMap map;
  const CUresult result =
      function(&map, of.type, of.rank, const_cast<void*>(of.data), of.sizes, of.strides, of.box,
               kSteps, CU_TENSOR_MAP_INTERLEAVE_NONE, of.swizzle, of.promotion, of.outside);
  if (result != CUDA_SUCCESS) {
    fail(ErrorCode::device, "the CUDA driver refused a tensor map (error {}) of sizes {} {} ...",
         static_cast<int>(result), of.sizes[0], of.sizes[1]);
  }
  return map;
}

CUtensorMapDataType type_of(const BoxedTensor& tensor) {
  if (size_of(tensor.dtype) == 1) return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  return tensor.dtype == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                    : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
}
CUtensorMapFloatOOBfill outside_of(const BoxedTensor& tensor) {
  return tensor.nan_outside ? CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA
                            : CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
}
// Of dimension i + 1, in bytes. The stride of a dimension of size 1 does not matter, but must be
// valid.
cuuint64_t stride_of(const BoxedTensor& tensor, int i) {
  return static_cast<cuuint64_t>(
      tensor.sizes[i + 1] == 1 ? kAlignment : tensor.strides[i] * size_of(tensor.dtype));
}

}  // namespace

bool can_be_boxed(const BoxedTensor& tensor) {
  if (std::bit_cast<std::uintptr_t>(tensor.data) % kAlignment != 0) return false;
  for (const std::int64_t size : tensor.sizes) {
    if (size < 1 || size > kMostSize) return false;
  }
  for (int i = 0; i < 3; ++i) {
    const std::int64_t bytes = tensor.strides[i] * size_of(tensor.dtype);
    if (tensor.sizes[i + 1] == 1) continue;
    if (bytes <= 0 || bytes >= kMostStride || bytes % kAlignment != 0) return false;
  }
  return true;
}

CUtensorMap make_tensor_map(const BoxedTensor& tensor) {
  cuuint64_t sizes[4], strides[3];
  for (int i = 0; i < 4; ++i) sizes[i] = static_cast<cuuint64_t>(tensor.sizes[i]);
  for (int i = 0; i < 3; ++i) strides[i] = stride_of(tensor, i);
  const cuuint32_t box[4] = {64, static_cast<cuuint32_t>(tensor.box_rows),
                             static_cast<cuuint32_t>(tensor.box_planes), 1};
  return encode({.type = type_of(tensor),
                 .rank = 4,
                 .data = tensor.data,
                 .sizes = sizes,
                 .strides = strides,
                 .box = box,
                 .swizzle = CU_TENSOR_MAP_SWIZZLE_128B,
                 .outside = outside_of(tensor)});
}

CUtensorMap make_row_map(const BoxedTensor& tensor) {
  constexpr std::int64_t kPanelBytes = 128;
  const std::int64_t element = size_of(tensor.dtype), row_bytes = tensor.sizes[0] * element;
  const bool panels = row_bytes % kPanelBytes == 0;
  const std::int64_t width = panels ? kPanelBytes / element : tensor.sizes[0];
  const std::int64_t count = tensor.sizes[0] / width;
  const auto as_size = [](std::int64_t size) { return static_cast<cuuint64_t>(size); };
  const cuuint64_t sizes[5] = {as_size(width), as_size(tensor.sizes[1]), as_size(count),
                               as_size(tensor.sizes[2]), as_size(tensor.sizes[3])};
  const cuuint64_t strides[4] = {stride_of(tensor, 0), as_size(kPanelBytes), stride_of(tensor, 1),
                                 stride_of(tensor, 2)};
  const cuuint32_t box[5] = {
      static_cast<cuuint32_t>(width), static_cast<cuuint32_t>(tensor.box_rows),
      static_cast<cuuint32_t>(tensor.box_planes), static_cast<cuuint32_t>(tensor.box_heads), 1};
  return encode({.type = type_of(tensor),
                 .rank = 5,
                 .data = tensor.data,
                 .sizes = sizes,
                 .strides = strides,
                 .box = box,
                 .swizzle = panels ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
                 .outside = outside_of(tensor),
                 .promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_128B});
}

CUtensorMap make_tensor_map(const BoxedBytes& bytes) {
  constexpr int kUnit = 8;  // bytes of the largest element
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(bytes.row_bytes / kUnit),
                               static_cast<cuuint64_t>(bytes.rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(bytes.row_bytes)};
  const cuuint32_t box[2] = {static_cast<cuuint32_t>(bytes.box_bytes / kUnit),
                             static_cast<cuuint32_t>(bytes.box_rows)};
  return encode({.type = CU_TENSOR_MAP_DATA_TYPE_INT64,
                 .rank = 2,
                 .data = bytes.data,
                 .sizes = sizes,
                 .strides = strides,
                 .box = box,
                 .swizzle = CU_TENSOR_MAP_SWIZZLE_NONE});
}

}  // namespace tessera::cuda::tile
