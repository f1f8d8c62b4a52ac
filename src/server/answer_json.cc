#include "server/answer_json.h"

#include <algorithm>
#include <utility>

#include "server/characters.h"
#include "server/random_hex.h"
#include "server/token_text.h"
#include "server/unix_time.h"

namespace tessera::server {
namespace {

using Json = nlohmann::json;

// The API knows two ends of an answer.
std::string finish_reason(StopReason reason) {
  switch (reason) {
    case StopReason::eos:
    case StopReason::stop_string:
      return "stop";
    case StopReason::max_tokens:
    case StopReason::context_full:
    case StopReason::deadline:
    case StopReason::cancelled:
      break;
  }
  return "length";
}

Json usage_json(const TokenCounts& counts) {
  return {{"prompt_tokens", counts.prompt},
          {"completion_tokens", counts.generated},
          {"total_tokens", counts.prompt + counts.generated},
          {"prompt_tokens_details", {{"cached_tokens", counts.cached}}}};
}

// {"token", "logprob", "bytes"} of a chat.
Json chat_token(const Tokenizer& tokenizer, const TokenLogprob& token) {
  const std::string text = token_text(tokenizer, token.id);
  Json bytes = Json::array();
  for (const char c : token_bytes(tokenizer, token.id)) {
    bytes.push_back(static_cast<unsigned char>(c));
  }
  return {{"token", text}, {"logprob", token.logprob}, {"bytes", std::move(bytes)}};
}

Json chat_logprobs(const Tokenizer& tokenizer, const std::vector<ShownToken>& tokens) {
  Json content = Json::array();
  for (const auto& [sampled, offset] : tokens) {
    Json entry = chat_token(tokenizer, sampled.token);
    entry["top_logprobs"] = Json::array();
    for (const TokenLogprob& other : sampled.top) {
      entry["top_logprobs"].push_back(chat_token(tokenizer, other));
    }
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

// Four lists side by side, as completions have them.
Json completion_logprobs(const Tokenizer& tokenizer, const std::vector<ShownToken>& tokens) {
  Json names = Json::array(), logprobs = Json::array(), tops = Json::array(),
       offsets = Json::array();
  for (const auto& [sampled, offset] : tokens) {
    const std::string text = token_text(tokenizer, sampled.token.id);
    Json top = Json::object();
    for (const TokenLogprob& other : sampled.top) {
      top.emplace(token_text(tokenizer, other.id), other.logprob);  // of equal texts, the likeliest
    }
    top.emplace(text, sampled.token.logprob);
    names.push_back(text);
    logprobs.push_back(sampled.token.logprob);
    tops.push_back(std::move(top));
    offsets.push_back(offset);
  }
  return {{"tokens", std::move(names)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

}  // namespace

AnswerJson::AnswerJson(const ServedModel& served, const GenerationRequest& request)
    : served_(served),
      chat_(request.chat),
      logprobs_(request.logprobs),
      include_usage_(request.include_usage),
      echoes_(request.echoes),
      n_(request.n()),
      id_((request.chat ? "chatcmpl-" : "cmpl-") + random_hex(3)),
      created_(unix_seconds()),
      choices_(static_cast<std::size_t>(request.choices())) {
  if (logprobs_ && !chat_) {
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      const Request& prompt = request.requests[i / static_cast<std::size_t>(n_)];
      choices_[i].decoder.emplace(&served.tokenizer, prompt.prompt_ids, std::vector<std::string>());
    }
  }
  const GenerateOptions& options = request.requests.front().options;
  end_ids_.assign(options.stop_ids.begin(), options.stop_ids.end());
  if (options.ignore_eos) return;
  const auto& eos = served.config.eos;
  end_ids_.insert(end_ids_.end(), eos.begin(), eos.end());
}

bool AnswerJson::is_shown(const Sampled& token) const {
  return std::find(end_ids_.begin(), end_ids_.end(), token.token.id) == end_ids_.end();
}

Json AnswerJson::frame(bool is_chunk) const {
  const char* object = !chat_     ? "text_completion"
                       : is_chunk ? "chat.completion.chunk"
                                  : "chat.completion";
  Json json = {{"id", id_}, {"object", object}, {"created", created_}, {"model", served_.name}};
  if (is_chunk && include_usage_) json["usage"] = nullptr;  // the last chunk has it
  return json;
}

Json AnswerJson::logprobs_of(const std::vector<ShownToken>& tokens) const {
  if (!logprobs_) return nullptr;
  return chat_ ? chat_logprobs(served_.tokenizer, tokens)
               : completion_logprobs(served_.tokenizer, tokens);
}

// The event's own text does not tell where the token is: the engine holds back what may become a
// stop text, and a token may be a part of a character. All parts are where the character begins.
std::optional<ShownToken> AnswerJson::shown_token(std::int64_t index, const Event& event) {
  const bool is_token = event.kind == Event::Kind::token;
  if (!is_token || !logprobs_ || !is_shown(event.token.sampled)) return std::nullopt;
  Choice& of = choice_at(index);
  ShownToken token{event.token.sampled, of.characters};
  if (of.decoder) of.characters += count_characters(of.decoder->push(token.sampled.token.id));
  return token;
}

void AnswerJson::add(std::int64_t index, const Event& event) {
  Choice& to = choice_at(index);
  to.text += event.token.text;
  if (event.kind == Event::Kind::finished) to.reason = finish_reason(event.reason);
  if (auto token = shown_token(index, event)) to.tokens.push_back(std::move(*token));
}

Json AnswerJson::whole(const TokenCounts& counts) const {
  Json json = frame(false);
  json["choices"] = Json::array();
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    Json entry = {
        {"index", i}, {"logprobs", logprobs_of(choice.tokens)}, {"finish_reason", choice.reason}};
    if (chat_) {
      entry["message"] = {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}};
    } else {
      const std::size_t prompt = i / static_cast<std::size_t>(n_);
      entry["text"] = (echoes_.empty() ? std::string() : echoes_[prompt]) + choice.text;
    }
    json["choices"].push_back(std::move(entry));
  }
  json["usage"] = usage_json(counts);
  return json;
}

Json AnswerJson::chunk_of(Json choice) const {
  Json json = frame(true);
  json["choices"] = Json::array({std::move(choice)});
  return json;
}

Json AnswerJson::first_chunk(std::int64_t index) const {
  Json choice = {{"index", index}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
  if (chat_) {
    choice["delta"] = {{"role", "assistant"}, {"content", ""}};
  } else if (!echoes_.empty()) {
    choice["text"] = echoes_[static_cast<std::size_t>(index / n_)];
  } else {
    return nullptr;
  }
  return chunk_of(std::move(choice));
}

Json AnswerJson::chunk(std::int64_t index, const Event& event) {
  const bool finished = event.kind == Event::Kind::finished;
  const std::optional<ShownToken> token = shown_token(index, event);
  if (!finished && event.token.text.empty() && !token) return nullptr;
  Json choice = {{"index", index},
                 {"logprobs", token ? logprobs_of({*token}) : Json()},
                 {"finish_reason", finished ? Json(finish_reason(event.reason)) : Json()}};
  if (!chat_) {
    choice["text"] = event.token.text;
  } else if (finished && event.token.text.empty()) {
    choice["delta"] = Json::object();
  } else {
    choice["delta"] = {{"content", event.token.text}};
  }
  return chunk_of(std::move(choice));
}

Json AnswerJson::usage_chunk(const TokenCounts& counts) const {
  Json json = frame(true);
  json["choices"] = Json::array();
  json["usage"] = usage_json(counts);
  return json;
}

TokenCounts counts_of(const Event& finished) {
  return {finished.usage.prompt_tokens, finished.usage.cached_tokens,
          finished.usage.generated_tokens};
}

}  // namespace tessera::server
