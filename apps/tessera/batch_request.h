// From one line of JSON to a request for the engine.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "model_options.h"
#include "tessera/chat.h"
#include "tessera/engine.h"

namespace tessera::app {

class RequestReader {
 public:
  // `defaults`: for what a line does not say. `template_name`: how messages are written; empty: as
  // the model's folder says.
  RequestReader(const Session& session, GenerateOptions defaults, const CachePolicy& policy,
                const std::string& template_name);
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

  // Refuses unknown fields, wrong types and values with one sentence that begins with `where`.
  // What only the engine knows, such as the size of the vocabulary, is left to it.
  Request read(const nlohmann::json& json, const std::string& where) const;

 private:
  const Session& session_;
  GenerateOptions defaults_;
  CachePolicy policy_;
  std::optional<PromptEncoder> prompt_;  // none without a tokenizer
  std::optional<ChatEncoder> chat_;
  std::string why_no_chat_ = "the model has no chat template for messages";
};

}  // namespace tessera::app
