#include "conversation.h"

#include <fmt/format.h>

#include <utility>

#include "interrupt.h"
#include "tessera/error.h"

namespace tessera::app {

Conversation::Conversation(const Session& session, ConversationOptions options,
                           const ChatTemplate& chat, KvCache& cache)
    : session_(session),
      options_(std::move(options)),
      cache_(cache),
      tokenizer_(*session.tokenizer),
      prompt_(tokenizer_, session.model->config(), session.directory),
      chat_(prompt_, chat) {
  if (chat_.turn_end() >= 0) options_.generate.stop_ids = {chat_.turn_end()};
  check(options_.generate.sampling, session.model->config().vocab);
}

Turn Conversation::answer(const std::string& user,
                          const std::function<void(std::string_view)>& on_text) {
  Turn turn;
  std::vector<std::int32_t> ids;
  turn.refusal = refusal(user, ids);
  if (!turn.refusal.empty()) return turn;
  options_.generate.cancel = &catch_interrupt();
  // The same words get another answer: each turn has its own seed.
  ++options_.generate.sampling.seed;
  turn.result =
      generate(*session_.ctx, *session_.model, cache_, &tokenizer_, ids, options_.generate,
               [&](const GeneratedToken& token) { on_text(token.text); });
  if (turn.result.reason == StopReason::context_full) turn.notes.push_back(full_text());
  remember(turn);
  return turn;
}

void Conversation::reset() {
  cache_.clear();
  carry_.clear();
  first_ = true;
}

// What the model has not read yet: the end of the last answer, and this turn.
std::vector<std::int32_t> Conversation::next_ids(const std::string& user) const {
  if (first_) {
    std::vector<ChatMessage> messages;
    if (!options_.system.empty()) {
      messages.push_back({ChatMessage::Role::system, options_.system});
    }
    messages.push_back({ChatMessage::Role::user, user});
    return chat_.begin(messages);
  }
  std::vector<std::int32_t> ids = carry_;
  const std::vector<std::int32_t> turn = chat_.next(user);
  ids.insert(ids.end(), turn.begin(), turn.end());
  return ids;
}

std::string Conversation::refusal(const std::string& user, std::vector<std::int32_t>& ids) const {
  try {
    ids = next_ids(user);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    return fmt::format("this turn was left out: {}", error.what());
  }
  if (ids.empty()) return "an empty line has no tokens for this model; write something";
  const KvCacheOptions& o = cache_.options();
  const std::int64_t wanted = cache_.seen() + static_cast<std::int64_t>(ids.size());
  const bool fits = o.policy.kind != CachePolicy::Kind::full || wanted <= o.max_tokens;
  return fits ? "" : full_text();
}

std::string Conversation::full_text() const {
  return fmt::format("the context of {} tokens is full; enter /reset to start over, or {}",
                     cache_.options().max_tokens, streaming_advice(session_.model->config()));
}

// The last token has not been through the model: it goes ahead of the next turn. The token that
// ends an answer follows it, where the model did not write that itself.
void Conversation::remember(Turn& turn) {
  const GenerateResult& result = turn.result;
  if (result.ids.empty()) {
    turn.notes.emplace_back(
        "interrupted while your turn was being read; the conversation starts over");
    return reset();
  }
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
