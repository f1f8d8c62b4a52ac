#include "cpu/linear/pack_rows.h"

#include <algorithm>

#include "core/type_switch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/linear/pack_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

void pack(const Rows& x, DType dtype, std::int64_t m0, std::int64_t m_size, PackedInput& to) {
  with_float_type(dtype, [&](auto type) HWY_ATTR {
    for (std::int64_t m = m0; m < m0 + m_size; ++m) {
      float* out = packed_row(to, m);
      convert_row_to_f32(hn::ScalableTag<float>(), x.row<const decltype(type)>(m), out,
                         static_cast<std::size_t>(to.k_size));
      std::fill(out + to.k_size, out + packed_row_stride(to.k_size), 0.f);
    }
  });
}

}  // namespace
}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(pack);

void pack_rows(const Rows& x, DType dtype, std::int64_t m0, std::int64_t m_size, PackedInput& to) {
  HWY_DYNAMIC_DISPATCH(pack)(x, dtype, m0, m_size, to);
}

}  // namespace tessera::cpu
#endif
