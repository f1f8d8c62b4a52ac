// Answers in the JSON of the OpenAI API, whole or in pieces.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/text_out.h"
#include "server/generation_request.h"
#include "server/served_model.h"
#include "tessera/engine.h"

namespace tessera::server {

struct TokenCounts {
  std::int64_t prompt = 0, cached = 0, generated = 0;
};

// A token whose log-probability is told.
struct ShownToken {
  Sampled sampled{};
  std::int64_t offset = 0;  // characters of the choice's text before it; of completions
};

// Writes the JSON of one request.
class AnswerJson {
 public:
  AnswerJson(const ServedModel& served, const GenerationRequest& request);

  const std::string& id() const { return id_; }  // "cmpl-5f0c..."

  // ---- an answer in one piece ----
  // Collects an event of the choice with this index among all of the request.
  void add(std::int64_t index, const Event& event);
  nlohmann::json whole(const TokenCounts& counts) const;

  // ---- a stream: one JSON object for each event ----
  // Before the first token of a choice: its role, or the prompt that is echoed. Null: nothing.
  nlohmann::json first_chunk(std::int64_t index) const;
  // Null: the event adds nothing that a client could see.
  nlohmann::json chunk(std::int64_t index, const Event& event);
  nlohmann::json usage_chunk(const TokenCounts& counts) const;

 private:
  struct Choice {
    std::string text{};
    std::vector<ShownToken> tokens{};
    std::string reason{};
    std::optional<TextOut> decoder{};  // with log-probabilities of a completion
    std::int64_t characters = 0;       // that the decoder has written
  };

  nlohmann::json frame(bool is_chunk) const;
  nlohmann::json chunk_of(nlohmann::json choice) const;
  nlohmann::json logprobs_of(const std::vector<ShownToken>& tokens) const;
  bool is_shown(const Sampled& token) const;
  // The event's token, if its log-probability is told. Once for each event.
  std::optional<ShownToken> shown_token(std::int64_t index, const Event& event);
  Choice& choice_at(std::int64_t index) { return choices_[static_cast<std::size_t>(index)]; }

  const ServedModel& served_;
  bool chat_, logprobs_, include_usage_;
  std::vector<std::string> echoes_;
  std::int64_t n_;
  std::vector<std::int64_t> end_ids_;  // tokens that end an answer and are no part of its text
  std::string id_;
  std::int64_t created_;
  std::vector<Choice> choices_;
};

// The tokens of a finished choice; those of its prompt count once for all choices.
TokenCounts counts_of(const Event& finished);

}  // namespace tessera::server
