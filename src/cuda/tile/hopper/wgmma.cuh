// Matrix products of a warpgroup (wgmma, sm_90a): D[64, N] += A[64, 16] B[16, N], f32 sums.
// (cuda::ptx does not have them.)
//
// A is in registers or shared memory, B in shared memory; descriptors give the address. D, and A in
// registers, are spread over the warpgroup's lanes as mma.sync spreads them over a warp's: warp w
// has rows 16 w to 16 w + 15; lane l has columns 8 j + 2 (l % 4) and the next one, of row l / 4 in
// d[4 j], d[4 j + 1], and of row l / 4 + 8 in d[4 j + 2], d[4 j + 3]. Two neighbouring j of D,
// rounded and packed, are an A operand of 16 columns, so a product's result feeds the next one from
// registers.
//
// The products run asynchronously. Three calls, all by whole warpgroups, keep the order:
//   wgmma_fence()    before the first one, and after registers of D or A were written otherwise
//   wgmma_commit()   closes a group of products
//   wgmma_wait<n>()  until at most the n last groups are still running; then D may be read
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace tessera::cuda::tile {

// ---- where a matrix lies ------------------------------------------------------------------------
//
// Panels of 64 elements (128 bytes) by any number of rows, row after row, each aligned to 1024
// bytes; in a row the 16-byte parts are swizzled (swizzle.cuh), as the copy engine writes them.

namespace detail {
__device__ inline std::uint64_t descriptor(const void* at, std::uint32_t leading_bytes) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  constexpr std::uint64_t kEightRows = std::uint64_t{1024 >> 4} << 32;
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
  return kSwizzle128 | kEightRows | std::uint64_t{leading_bytes >> 4} << 16 |
         ((address & 0x3ffff) >> 4);
}
}  // namespace detail

// Rows are rows of A, or columns of B; the 16 elements to sum over are adjacent. The next 16 of a
// panel are 32 bytes further.
__device__ inline std::uint64_t depth_contiguous(const void* panel) {
  return detail::descriptor(panel, 16);
}
// The sum is over 16 rows; a row has 64 columns of B, and the next 64 are panel_bytes further. The
// next 16 rows are 2048 bytes further.
__device__ inline std::uint64_t columns_contiguous(const void* panel, std::uint32_t panel_bytes) {
  return detail::descriptor(panel, panel_bytes);
}
// The same descriptor, `bytes` bytes further (a multiple of 16).
__device__ inline std::uint64_t moved(std::uint64_t descriptor, std::uint32_t bytes) {
  return descriptor + (bytes >> 4);
}

// ---- order --------------------------------------------------------------------------------------

__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int running>
__device__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(running) : "memory");
}
// The compiler does not know that a running product writes d: nothing that touches d may be moved
// from one side of this to the other.
template <int n>
__device__ void pin(float (&d)[n]) {
#pragma unroll
  for (int i = 0; i < n; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// The assembler moves a wait up, ahead of arithmetic that does not need it. Work that should run
// beside the products would then run after them. It does not move a wait over a store, so this is a
// store that never happens: it depends on a sum (of weights, never negative) that needs all of that
// arithmetic.
__device__ inline void finish_first(float sum, void* shared) {
  asm volatile(
      "{\n.reg .pred never;\nsetp.lt.f32 never, %0, 0f00000000;\n"
      "@never st.shared.f32 [%1], %0;\n}\n" ::"f"(sum),
      "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared)))
      : "memory");
}

// ---- products -----------------------------------------------------------------------------------

enum class BLayout : int { depth_contiguous = 0, columns_contiguous = 1 };

// Wgmma<N>::shared(d, a, b, add) with A in shared memory (depth contiguous), ::registers(d, a, b)
// with A in registers, which always adds. One instruction for each N; the text is the same.
template <int N>
struct Wgmma;

// clang-format off
#define TESSERA_NAMES_0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define TESSERA_NAMES_8 "%8, %9, %10, %11, %12, %13, %14, %15"
#define TESSERA_NAMES_16 "%16, %17, %18, %19, %20, %21, %22, %23"
#define TESSERA_NAMES_24 "%24, %25, %26, %27, %28, %29, %30, %31"
#define TESSERA_NAMES_32 "%32, %33, %34, %35, %36, %37, %38, %39"
#define TESSERA_NAMES_40 "%40, %41, %42, %43, %44, %45, %46, %47"
#define TESSERA_NAMES_48 "%48, %49, %50, %51, %52, %53, %54, %55"
#define TESSERA_NAMES_56 "%56, %57, %58, %59, %60, %61, %62, %63"
#define TESSERA_NAMES_64 "%64, %65, %66, %67, %68, %69, %70, %71"
#define TESSERA_NAMES_72 "%72, %73, %74, %75, %76, %77, %78, %79"
#define TESSERA_NAMES_80 "%80, %81, %82, %83, %84, %85, %86, %87"
#define TESSERA_NAMES_88 "%88, %89, %90, %91, %92, %93, %94, %95"
#define TESSERA_NAMES_96 "%96, %97, %98, %99, %100, %101, %102, %103"
#define TESSERA_NAMES_104 "%104, %105, %106, %107, %108, %109, %110, %111"
#define TESSERA_NAMES_112 "%112, %113, %114, %115, %116, %117, %118, %119"
#define TESSERA_NAMES_120 "%120, %121, %122, %123, %124, %125, %126, %127"
#define TESSERA_SUMS_8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), \
                          "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
// P0 to P5 are the numbers of the operands after the sums.
#define TESSERA_WGMMA_SHARED(N, TYPE, NAMES, SUMS, P0, P1, P2, P3)                                  \
  asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " P2 ", 0;\n"                                  \
               "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" NAMES "}, "     \
               P0 ", " P1 ", add, 1, 1, 0, " P3 ";\n}\n"                                            \
               : SUMS : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(static_cast<int>(layout)))
#define TESSERA_WGMMA_REGISTERS(N, TYPE, NAMES, SUMS, P0, P1, P2, P3, P4, P5)                       \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" NAMES "}, {"    \
               P0 ", " P1 ", " P2 ", " P3 "}, " P4 ", 1, 1, 1, " P5 ";\n"                           \
               : SUMS : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),                         \
                 "n"(static_cast<int>(layout)))
#define TESSERA_WGMMA(N, NAMES, SUMS, P0, P1, P2, P3, P4, P5)                                       \
  template <>                                                                                       \
  struct Wgmma<N> {                                                                                 \
    template <typename T, BLayout layout>                                                           \
    __device__ static void shared(float (&d)[N / 2], std::uint64_t a, std::uint64_t b, bool add) {  \
      if constexpr (std::is_same_v<T, __half>) {                                                    \
        TESSERA_WGMMA_SHARED(N, "f16", NAMES, TESSERA_UNPACK SUMS, P0, P1, P2, P3);                 \
      } else {                                                                                      \
        TESSERA_WGMMA_SHARED(N, "bf16", NAMES, TESSERA_UNPACK SUMS, P0, P1, P2, P3);                \
      }                                                                                             \
    }                                                                                               \
    template <typename T, BLayout layout>                                                           \
    __device__ static void registers(float (&d)[N / 2], const std::uint32_t (&a)[4],                \
                                     std::uint64_t b) {                                             \
      if constexpr (std::is_same_v<T, __half>) {                                                    \
        TESSERA_WGMMA_REGISTERS(N, "f16", NAMES, TESSERA_UNPACK SUMS, P0, P1, P2, P3, P4, P5);      \
      } else {                                                                                      \
        TESSERA_WGMMA_REGISTERS(N, "bf16", NAMES, TESSERA_UNPACK SUMS, P0, P1, P2, P3, P4, P5);     \
      }                                                                                             \
    }                                                                                               \
  };
#define TESSERA_UNPACK(...) __VA_ARGS__

TESSERA_WGMMA(16, TESSERA_NAMES_0, (TESSERA_SUMS_8(0)), "%8", "%9", "%10", "%11", "%12", "%13")
TESSERA_WGMMA(32, TESSERA_NAMES_0 ", " TESSERA_NAMES_8, (TESSERA_SUMS_8(0), TESSERA_SUMS_8(8)),
  "%16", "%17", "%18", "%19", "%20", "%21")
TESSERA_WGMMA(64,
  TESSERA_NAMES_0 ", " TESSERA_NAMES_8 ", " TESSERA_NAMES_16 ", " TESSERA_NAMES_24,
  (TESSERA_SUMS_8(0), TESSERA_SUMS_8(8), TESSERA_SUMS_8(16), TESSERA_SUMS_8(24)),
  "%32", "%33", "%34", "%35", "%36", "%37")
TESSERA_WGMMA(80,
  TESSERA_NAMES_0 ", " TESSERA_NAMES_8 ", " TESSERA_NAMES_16 ", " TESSERA_NAMES_24 ", "
  TESSERA_NAMES_32,
  (TESSERA_SUMS_8(0), TESSERA_SUMS_8(8), TESSERA_SUMS_8(16), TESSERA_SUMS_8(24),
  TESSERA_SUMS_8(32)),
  "%40", "%41", "%42", "%43", "%44", "%45")
TESSERA_WGMMA(96,
  TESSERA_NAMES_0 ", " TESSERA_NAMES_8 ", " TESSERA_NAMES_16 ", " TESSERA_NAMES_24 ", "
  TESSERA_NAMES_32 ", " TESSERA_NAMES_40,
  (TESSERA_SUMS_8(0), TESSERA_SUMS_8(8), TESSERA_SUMS_8(16), TESSERA_SUMS_8(24),
  TESSERA_SUMS_8(32), TESSERA_SUMS_8(40)),
  "%48", "%49", "%50", "%51", "%52", "%53")
TESSERA_WGMMA(128,
  TESSERA_NAMES_0 ", " TESSERA_NAMES_8 ", " TESSERA_NAMES_16 ", " TESSERA_NAMES_24 ", "
  TESSERA_NAMES_32 ", " TESSERA_NAMES_40 ", " TESSERA_NAMES_48 ", " TESSERA_NAMES_56,
  (TESSERA_SUMS_8(0), TESSERA_SUMS_8(8), TESSERA_SUMS_8(16), TESSERA_SUMS_8(24),
  TESSERA_SUMS_8(32), TESSERA_SUMS_8(40), TESSERA_SUMS_8(48), TESSERA_SUMS_8(56)),
  "%64", "%65", "%66", "%67", "%68", "%69")
TESSERA_WGMMA(176,
  TESSERA_NAMES_0 ", " TESSERA_NAMES_8 ", " TESSERA_NAMES_16 ", " TESSERA_NAMES_24 ", "
  TESSERA_NAMES_32 ", " TESSERA_NAMES_40 ", " TESSERA_NAMES_48 ", " TESSERA_NAMES_56 ", "
  TESSERA_NAMES_64 ", " TESSERA_NAMES_72 ", " TESSERA_NAMES_80,
  (TESSERA_SUMS_8(0), TESSERA_SUMS_8(8), TESSERA_SUMS_8(16), TESSERA_SUMS_8(24),
  TESSERA_SUMS_8(32), TESSERA_SUMS_8(40), TESSERA_SUMS_8(48), TESSERA_SUMS_8(56),
  TESSERA_SUMS_8(64), TESSERA_SUMS_8(72), TESSERA_SUMS_8(80)),
  "%88", "%89", "%90", "%91", "%92", "%93")
TESSERA_WGMMA(192,
  TESSERA_NAMES_0 ", " TESSERA_NAMES_8 ", " TESSERA_NAMES_16 ", " TESSERA_NAMES_24 ", "
  TESSERA_NAMES_32 ", " TESSERA_NAMES_40 ", " TESSERA_NAMES_48 ", " TESSERA_NAMES_56 ", "
  TESSERA_NAMES_64 ", " TESSERA_NAMES_72 ", " TESSERA_NAMES_80 ", " TESSERA_NAMES_88,
  (TESSERA_SUMS_8(0), TESSERA_SUMS_8(8), TESSERA_SUMS_8(16), TESSERA_SUMS_8(24),
  TESSERA_SUMS_8(32), TESSERA_SUMS_8(40), TESSERA_SUMS_8(48), TESSERA_SUMS_8(56),
  TESSERA_SUMS_8(64), TESSERA_SUMS_8(72), TESSERA_SUMS_8(80), TESSERA_SUMS_8(88)),
  "%96", "%97", "%98", "%99", "%100", "%101")
TESSERA_WGMMA(256,
  TESSERA_NAMES_0 ", " TESSERA_NAMES_8 ", " TESSERA_NAMES_16 ", " TESSERA_NAMES_24 ", "
  TESSERA_NAMES_32 ", " TESSERA_NAMES_40 ", " TESSERA_NAMES_48 ", " TESSERA_NAMES_56 ", "
  TESSERA_NAMES_64 ", " TESSERA_NAMES_72 ", " TESSERA_NAMES_80 ", " TESSERA_NAMES_88 ", "
  TESSERA_NAMES_96 ", " TESSERA_NAMES_104 ", " TESSERA_NAMES_112 ", " TESSERA_NAMES_120,
  (TESSERA_SUMS_8(0), TESSERA_SUMS_8(8), TESSERA_SUMS_8(16), TESSERA_SUMS_8(24),
  TESSERA_SUMS_8(32), TESSERA_SUMS_8(40), TESSERA_SUMS_8(48), TESSERA_SUMS_8(56),
  TESSERA_SUMS_8(64), TESSERA_SUMS_8(72), TESSERA_SUMS_8(80), TESSERA_SUMS_8(88),
  TESSERA_SUMS_8(96), TESSERA_SUMS_8(104), TESSERA_SUMS_8(112), TESSERA_SUMS_8(120)),
  "%128", "%129", "%130", "%131", "%132", "%133")

#undef TESSERA_NAMES_0
#undef TESSERA_NAMES_8
#undef TESSERA_NAMES_16
#undef TESSERA_NAMES_24
#undef TESSERA_NAMES_32
#undef TESSERA_NAMES_40
#undef TESSERA_NAMES_48
#undef TESSERA_NAMES_56
#undef TESSERA_NAMES_64
#undef TESSERA_NAMES_72
#undef TESSERA_NAMES_80
#undef TESSERA_NAMES_88
#undef TESSERA_NAMES_96
#undef TESSERA_NAMES_104
#undef TESSERA_NAMES_112
#undef TESSERA_NAMES_120
#undef TESSERA_SUMS_8
#undef TESSERA_WGMMA_SHARED
#undef TESSERA_WGMMA_REGISTERS
#undef TESSERA_WGMMA
#undef TESSERA_UNPACK
// clang-format on

}  // namespace tessera::cuda::tile
