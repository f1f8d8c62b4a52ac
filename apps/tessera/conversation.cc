#include "conversation.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "interrupt.h"
#include "tessera/error.h"

namespace tessera::app {

Conversation::Conversation(const Session& session, ConversationOptions options, ChatTemplate chat,
                           KvCache& cache)
    : session_(session),
      options_(std::move(options)),
      cache_(cache),
      tokenizer_(*session.tokenizer),
      prompt_(tokenizer_, session.model->config(), session.directory),
      chat_(prompt_, std::move(chat)) {
  if (chat_.turn_end() >= 0) options_.generate.stop_ids = {chat_.turn_end()};
  check(options_.generate.sampling, session.model->config().vocab);
}

Turn Conversation::answer(const std::string& user,
                          const std::function<void(std::string_view)>& on_text) {
  Turn turn;
  Reading reading;
  turn.refusal = refusal(user, reading);
  if (!turn.refusal.empty()) return turn;
  if (reading.from_start) cache_.clear();
  options_.generate.cancel = &catch_interrupt();
  // The same words get another answer: each turn has its own seed.
  ++options_.generate.sampling.seed;
  turn.result =
      generate(*session_.ctx, *session_.model, cache_, &tokenizer_, reading.ids, options_.generate,
               [&](const GeneratedToken& token) { on_text(token.text); });
  if (turn.result.reason == StopReason::context_full) turn.notes.push_back(full_text());
  remember(user, turn);
  return turn;
}

void Conversation::reset() {
  cache_.clear();
  carry_.clear();
  messages_.clear();
  first_ = true;
}

// The pages of old tokens are used again: earlier turns are gone, and nothing can be read again.
bool Conversation::is_endless() const {
  return cache_.options().policy.kind != CachePolicy::Kind::full;
}

Conversation::Reading Conversation::next_reading(const std::string& user) const {
  std::vector<ChatMessage> messages = messages_;
  if (first_ && !options_.system.empty()) messages.push_back({"system", options_.system});
  messages.push_back({"user", user});
  if (first_) return {chat_.encode(messages), true};
  const auto turn =
      is_endless() ? std::optional(chat_.next(user)) : chat_.encode_after_answer(messages);
  if (!turn) return {chat_.encode(messages), true};
  // The end of the last answer comes first.
  Reading reading{carry_, false};
  reading.ids.insert(reading.ids.end(), turn->begin(), turn->end());
  return reading;
}

std::string Conversation::refusal(const std::string& user, Reading& reading) const {
  try {
    reading = next_reading(user);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    return fmt::format("this turn was left out: {}", error.what());
  }
  if (reading.ids.empty()) return "an empty line has no tokens for this model; write something";
  const KvCacheOptions& o = cache_.options();
  const std::int64_t wanted =
      (reading.from_start ? 0 : cache_.seen()) + static_cast<std::int64_t>(reading.ids.size());
  return is_endless() || wanted <= o.max_tokens ? "" : full_text();
}

std::string Conversation::full_text() const {
  return fmt::format("the context of {} tokens is full; enter /reset to start over, or {}",
                     cache_.options().max_tokens, streaming_advice(session_.model->config()));
}

// The last token has not been through the model: it goes ahead of the next turn. The token that
// ends an answer follows it, where the model did not write that itself.
void Conversation::remember(const std::string& user, Turn& turn) {
  const GenerateResult& result = turn.result;
  if (result.ids.empty()) {
    turn.notes.emplace_back(
        "interrupted while your turn was being read; the conversation starts over");
    return reset();
  }
  if (first_ && !options_.system.empty()) messages_.push_back({"system", options_.system});
  messages_.push_back({"user", user});
  messages_.push_back({"assistant", result.text});
  if (is_endless()) messages_.clear();
  first_ = false;
  carry_.clear();
  const std::int32_t last = result.ids.back();
  const bool is_turn_end = last == chat_.turn_end();
  if (is_turn_end || result.reason != StopReason::eos) carry_.push_back(last);
  if (!is_turn_end && chat_.turn_end() >= 0) carry_.push_back(chat_.turn_end());
  total_.ids.insert(total_.ids.end(), result.ids.begin(), result.ids.end());
  if (total_.prompt_tokens == 0) total_.first_seconds = result.first_seconds;
  total_.prompt_tokens += result.prompt_tokens;
  total_.decode_seconds += result.decode_seconds;
  total_.reason = result.reason;
}

}  // namespace tessera::app
