// A kernel that shows who reads too early.
#pragma once

#include <cstdint>

#include "tessera/context.h"

namespace tessera::test {

// Copies so many bytes, a multiple of 4, from one place on the device to another. The kernel lets
// the next one start at once, then sleeps for some 200 us, and only then writes: whoever reads
// before the kernels ahead have ended reads what was there before.
void write_late(Context& ctx, const void* from, void* to, std::int64_t bytes);

}  // namespace tessera::test
