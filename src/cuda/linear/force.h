// Linear kernels by name, for tests and benchmarks.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/context.h"

namespace tessera::cuda {

// Sets the kernel that a Context's linear layers use from here on; "" restores their own choice. A
// call that the kernel cannot run is refused or, with `where_it_can`, left to the usual choice.
enum class Forced : std::uint8_t { always, where_it_can };
void force_linear_kernel(Context& ctx, std::string_view name, Forced forced = Forced::always);

std::vector<const char*> linear_kernel_names();

}  // namespace tessera::cuda
