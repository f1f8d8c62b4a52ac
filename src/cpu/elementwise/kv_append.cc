// Copies keys and values into the pages of a cache, token by token. All heads of a token are copied
// at once if they are contiguous on both sides.
#include "cpu/elementwise/kv_append.h"

#include <cstdint>
#include <cstring>

#include "cpu/elementwise/for_each_row.h"

namespace tessera::cpu {
namespace {

// pages [pages, page_size, heads, dim] at `slot` = tensor [tokens, heads, dim] at `token`
void copy_token(const Tensor& tensor, std::int64_t token, const Tensor& pages, std::int64_t slot) {
  const std::int64_t item = size_of(tensor.dtype), heads = tensor.shape[1], dim = tensor.shape[2];
  const std::int64_t page = slot / pages.shape[1], row = slot % pages.shape[1];
  const char* from = tensor.ptr<const char>() + token * tensor.strides[0] * item;
  char* to = pages.ptr<char>() + (page * pages.strides[0] + row * pages.strides[1]) * item;
  if (tensor.strides[1] == dim && pages.strides[2] == dim) {
    std::memcpy(to, from, static_cast<std::size_t>(heads * dim * item));
    return;
  }
  for (std::int64_t h = 0; h < heads; ++h) {
    std::memcpy(to + h * pages.strides[2] * item, from + h * tensor.strides[1] * item,
                static_cast<std::size_t>(dim * item));
  }
}

}  // namespace

void kv_append(Context& ctx, const KvAppendArgs& args) {
  if (args.k.numel() == 0) return;
  const std::int32_t* slots = args.slots.ptr<const std::int32_t>();
  const std::int64_t elements = 2 * args.k.shape[1] * args.k.shape[2];
  for_each_row(ctx.pool(), args.k.shape[0], elements, [&](std::int64_t token, int) {
    copy_token(args.k, token, args.k_pages, slots[token]);
    copy_token(args.v, token, args.v_pages, slots[token]);
  });
}

}  // namespace tessera::cpu
