// What guessing ahead gains: the same answers with and without, on text that repeats itself and on
// text that does not.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tessera/context.h"
#include "tessera/dtype.h"
#include "tessera/model.h"

namespace tessera::bench {

struct SpeculationRuns {
  bool ngram = false;
  const Model* draft = nullptr;  // or null
  std::vector<std::int64_t> streams{};
  std::int64_t generate = 128;  // tokens of each answer
  std::int64_t max_step = 512;
  std::optional<DType> cache_dtype{};
  int repeat = 3;
};

// `folder` has the model's tokenizer. Calls print() with an object for each text, number of streams
// and kind of speculation; "off" is always among the kinds.
void measure_speculation(Context& ctx, const Model& model, const std::string& folder,
                         const SpeculationRuns& runs,
                         const std::function<void(const nlohmann::json&)>& print);

}  // namespace tessera::bench
