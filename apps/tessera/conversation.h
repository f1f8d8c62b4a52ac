// A chat: turns over one KV cache that lives as long as the conversation. Each turn reads only what
// is new, unless the template writes earlier turns anew; then the model reads all of them again.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "model_options.h"
#include "tessera/chat.h"
#include "tessera/generate.h"

namespace tessera::app {

struct ConversationOptions {
  std::string system;        // what the model is told before the first turn
  GenerateOptions generate;  // of each answer
};

struct Turn {
  GenerateResult result;
  std::string refusal;             // why there is no answer; empty: there is one
  std::vector<std::string> notes;  // what the user should know about this turn
};

class Conversation {
 public:
  // Session and cache must outlive the conversation. The session has a tokenizer.
  Conversation(const Session& session, ConversationOptions options, ChatTemplate chat,
               KvCache& cache);

  // Text that is not UTF-8, is empty or does not fit is refused for this turn only. `on_text` gets
  // the answer as it comes.
  Turn answer(const std::string& user, const std::function<void(std::string_view)>& on_text);
  void reset();

  // Of all turns together.
  const GenerateResult& total() const { return total_; }

 private:
  // What the model has not read yet.
  struct Reading {
    std::vector<std::int32_t> ids;
    bool from_start;  // into an empty cache
  };
  Reading next_reading(const std::string& user) const;
  std::string refusal(const std::string& user, Reading& reading) const;
  bool is_endless() const;
  std::string full_text() const;
  void remember(const std::string& user, Turn& turn);

  const Session& session_;
  ConversationOptions options_;
  KvCache& cache_;
  const Tokenizer& tokenizer_;
  PromptEncoder prompt_;
  ChatEncoder chat_;
  std::vector<std::int32_t> carry_;    // what the model wrote last and has not read yet
  std::vector<ChatMessage> messages_;  // all of them, unless the chat is endless
  bool first_ = true;
  GenerateResult total_;
};

}  // namespace tessera::app
