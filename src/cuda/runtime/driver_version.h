// The driver's own version, which CUDA does not report.
#pragma once

#include <string>

namespace tessera::cuda {

// "570.124.06" in the text of /proc/driver/nvidia/version; empty if there is none.
std::string driver_version_in(const std::string& text);

}  // namespace tessera::cuda
