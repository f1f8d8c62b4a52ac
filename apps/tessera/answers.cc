#include "answers.h"

#include <algorithm>

namespace tessera::app {

bool Answers::take(const Event& event) {
  GenerateResult& result = results_[static_cast<std::size_t>(event.choice)];
  if (event.kind == Event::Kind::token) {
    result.ids.push_back(event.token.sampled.token.id);
    if (logprobs_) result.sampled.push_back(event.token.sampled);
    result.text += event.token.text;
    return false;
  }
  if (event.kind == Event::Kind::failed) {
    if (!error_) error_.emplace(event.code, event.message);
  } else {
    result.text += event.token.text;
  }
  result.reason = event.reason;
  result.prompt_tokens = event.usage.prompt_tokens;
  result.first_seconds = result.prefill_seconds = event.usage.first_seconds;
  result.decode_seconds = event.usage.total_seconds - event.usage.first_seconds;
  return --open_ == 0;
}

std::int64_t Answers::generated_tokens() const {
  std::int64_t count = 0;
  for (const GenerateResult& result : results_) count += std::ssize(result.ids);
  return count;
}

bool Answers::cancelled() const {
  return std::any_of(results_.begin(), results_.end(), [](const GenerateResult& result) {
    return result.reason == StopReason::cancelled;
  });
}

nlohmann::json logprobs_json(const GenerateResult& result, const Tokenizer* tokenizer) {
  const auto one = [&](const TokenLogprob& token) {
    nlohmann::json json = {{"id", token.id}, {"logprob", token.logprob}};
    const bool known = tokenizer != nullptr && token.id < tokenizer->vocab_size();
    if (known) json["token"] = tokenizer->token(token.id);
    return json;
  };
  nlohmann::json list = nlohmann::json::array();
  for (const Sampled& sampled : result.sampled) {
    nlohmann::json entry = one(sampled.token);
    entry["top"] = nlohmann::json::array();
    for (const TokenLogprob& token : sampled.top) entry["top"].push_back(one(token));
    list.push_back(entry);
  }
  return list;
}

}  // namespace tessera::app
