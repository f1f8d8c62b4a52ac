// A body of /v1/completions or /v1/chat/completions, checked and turned into requests of the
// engine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/served_model.h"
#include "tessera/engine.h"

namespace tessera::server {

struct GenerationRequest {
  bool chat = false;
  bool stream = false, include_usage = false;
  bool logprobs = false;
  // One for each prompt; choice j of prompt i has the index i * n + j.
  std::vector<Request> requests{};
  // With echo: the text of each prompt. Empty otherwise.
  std::vector<std::string> echoes{};

  std::int64_t n() const { return requests.front().n; }
  std::int64_t choices() const { return static_cast<std::int64_t>(requests.size()) * n(); }
};

// Throws ApiError, or an Error of the library, if anything in it is wrong. Nothing is queued here.
GenerationRequest read_generation(std::string_view body, bool chat, const ServedModel& served);

}  // namespace tessera::server
