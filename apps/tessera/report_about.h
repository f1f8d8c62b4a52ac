// What a report says about the machine and the model that it measured.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/device.h"
#include "tessera/model.h"

namespace tessera::app {

std::string today();   // "2026-11-17"
std::string commit();  // that this program was built from: "5728cdf", or "unknown" without git
std::string version_text();  // "0.1.0, commit 5728cdf"
std::string device_name(Device device);
// The formats of the linear layers, the most common first: "nvfp4", "nvfp4, bf16".
std::string weight_formats_of(const Model& model);
// Numbers that the linear layers and the embedding hold.
std::int64_t parameters_of(const Model& model);

}  // namespace tessera::app
