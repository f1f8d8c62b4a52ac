// Copies keys and values into the pages of a cache, token by token. All heads of a token are copied
// at once if they are contiguous on both sides. Pages of f16 or bf16 take f32 through vectors.
// Pages of 8 bits take two passes over each head: one finds its scale, the other writes its codes.
#include "cpu/elementwise/kv_append.h"

#include <cstdint>

#include "core/cache_dtype.h"
#include "core/type_switch.h"
#include "cpu/elementwise/for_each_row.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/elementwise/kv_append.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/simd/copy_row-inl.h"
#include "cpu/simd/encode8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

// Where a token goes: pages [pages, page_size, heads, dim] and, for 8 bits, scales [pages, heads,
// page_size].
struct Store {
  const Tensor &pages, &scales;
};

// pages at `slot` = tensor [tokens, heads, dim] at `token` / its scales
template <typename From, typename Code>
void store_codes(const Tensor& tensor, std::int64_t token, const Store& store, std::int64_t slot) {
  const Tensor &pages = store.pages, &scales = store.scales;
  const std::int64_t page = slot / pages.shape[1], row = slot % pages.shape[1];
  const From* from = tensor.ptr<const From>() + token * tensor.strides[0];
  Code* to = pages.ptr<Code>() + page * pages.strides[0] + row * pages.strides[1];
  float* scale = scales.ptr<float>() + page * scales.strides[0] + row * scales.strides[2];
  for (std::int64_t h = 0; h < tensor.shape[1]; ++h) {
    scale[h * scales.strides[1]] =
        encode_row(from + h * tensor.strides[1], static_cast<std::size_t>(tensor.shape[2]),
                   to + h * pages.strides[2]);
  }
}

// pages at `slot` = tensor [tokens, heads, dim] at `token`
template <typename From, typename To>
void store_floats(const Tensor& tensor, std::int64_t token, const Tensor& pages,
                  std::int64_t slot) {
  const std::int64_t heads = tensor.shape[1], dim = tensor.shape[2];
  const std::int64_t page = slot / pages.shape[1], row = slot % pages.shape[1];
  const From* from = tensor.ptr<const From>() + token * tensor.strides[0];
  To* to = pages.ptr<To>() + page * pages.strides[0] + row * pages.strides[1];
  if (tensor.strides[1] == dim && pages.strides[2] == dim) {
    return copy_row(from, to, static_cast<std::size_t>(heads * dim));
  }
  for (std::int64_t h = 0; h < heads; ++h) {
    copy_row(from + h * tensor.strides[1], to + h * pages.strides[2],
             static_cast<std::size_t>(dim));
  }
}

template <typename From, typename To>
void store_token(const Tensor& tensor, std::int64_t token, const Store& store, std::int64_t slot) {
  if constexpr (sizeof(To) == 1) {
    store_codes<From, To>(tensor, token, store, slot);
  } else {
    store_floats<From, To>(tensor, token, store.pages, slot);
  }
}

template <typename From, typename To>
void store_both(const KvAppendArgs& args, std::int64_t token) {
  const std::int32_t slot = args.slots.ptr<const std::int32_t>()[token];
  store_token<From, To>(args.k, token, {args.k_pages, args.k_scales}, slot);
  store_token<From, To>(args.v, token, {args.v_pages, args.v_scales}, slot);
}

void append_token(const KvAppendArgs& args, std::int64_t token) {
  const DType stored = args.k_pages.dtype;
  if (has_scales(stored)) {
    with_float_type(args.k.dtype, [&](auto type) {
      using From = decltype(type);
      stored == DType::i8 ? store_both<From, std::int8_t>(args, token)
                          : store_both<From, E4M3>(args, token);
    });
  } else if (stored == args.k.dtype) {
    with_float_type(stored,
                    [&](auto type) { store_both<decltype(type), decltype(type)>(args, token); });
  } else if (stored == DType::f16) {
    store_both<float, Half>(args, token);
  } else {
    store_both<float, BFloat16>(args, token);
  }
}

void kv_append(Context& ctx, const KvAppendArgs& args) {
  const std::int64_t elements = 2 * args.k.shape[1] * args.k.shape[2];
  for_each_row(ctx.pool(), args.k.shape[0], elements,
               [&](std::int64_t token, int) HWY_ATTR { append_token(args, token); });
}

}  // namespace
}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(append_token);
HWY_EXPORT(kv_append);

void append_token(const KvAppendArgs& args, std::int64_t token) {
  HWY_DYNAMIC_DISPATCH(append_token)(args, token);
}

void kv_append(Context& ctx, const KvAppendArgs& args) {
  if (args.k.numel() == 0) return;
  HWY_DYNAMIC_DISPATCH(kv_append)(ctx, args);
}

}  // namespace tessera::cpu
#endif
