// The model that the server answers with, and everything its requests need.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/chat.h"
#include "tessera/engine.h"
#include "tessera/model_config.h"
#include "tessera/prompt.h"
#include "tessera/tokenizer.h"

namespace tessera::server {

// All references must outlive the server's last answer.
struct ServedModel {
  std::string name;          // the id at /v1/models
  std::int64_t created = 0;  // seconds since 1970
  Engine* engine = nullptr;  // null: requests can only be read, as a fuzz target does
  std::int64_t context = 0;  // tokens of a sequence that keeps all of them
  const ModelConfig& config;
  const Tokenizer& tokenizer;
  const PromptEncoder& prompts;
  const ChatEncoder* chat = nullptr;  // null: the model has no chat template
  CachePolicy policy{};               // of requests that do not say
  std::int64_t page_bytes = 0;        // of keys and values, for all layers
};

}  // namespace tessera::server
