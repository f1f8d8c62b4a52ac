// What a checkpoint holds, from its headers alone: no weight is read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "model/checkpoint/checkpoint.h"

namespace tessera::app {

struct FormatShare {
  std::int64_t tensors = 0;     // weights, without their scales
  std::int64_t parameters = 0;  // numbers that they encode
  std::int64_t bytes = 0;       // scales included
};

struct CheckpointSummary {
  std::int64_t parameters = 0;
  std::int64_t bytes = 0;
  std::map<std::string, FormatShare> formats;  // "f16", "nvfp4", ...
  std::set<std::string> packed;                // those of `formats` that are packed
  std::vector<std::string> notes;              // what Tessera does not apply, as load_model says
};

CheckpointSummary summarise(const model::Checkpoint& checkpoint);

}  // namespace tessera::app
