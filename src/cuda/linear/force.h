// Linear kernels by name, for tests and benchmarks.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/context.h"

namespace tessera::cuda {

// The kernel that a Context's linear layers use from here on, "" for their own choice again. A call
// that the kernel cannot run is refused, or, where the kernel is forced only where it can run, left
// to the usual choice.
enum class Forced : std::uint8_t { always, where_it_can };
void force_linear_kernel(Context& ctx, std::string_view name, Forced forced = Forced::always);

std::vector<const char*> linear_kernel_names();

}  // namespace tessera::cuda
