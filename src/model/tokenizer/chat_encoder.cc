#include <algorithm>
#include <utility>

#include "core/fail.h"
#include "model/tokenizer/encode_text.h"
#include "model/tokenizer/unicode.h"
#include "tessera/chat.h"

namespace tessera {
namespace {

// A text by two hands: the template's own, and what people wrote.
struct ChatText {
  std::string text{};
  std::vector<model::Span> foreign{};

  void own(std::string_view part) { text += part; }

  void words(std::string_view part) {
    model::check_utf8(part);
    if (!part.empty()) foreign.push_back({text.size(), text.size() + part.size()});
    text += part;
  }

  void system(const ChatTemplate& chat, std::string_view content) {
    if (content.empty()) return;
    own(chat.system_open);
    words(content);
    own(chat.system_close);
  }

  // `system` is only for the first turn.
  void turn(const ChatTemplate& chat, std::string_view user, std::string_view system_content) {
    if (!chat.system_in_user) system(chat, system_content);
    own(chat.user_open);
    if (chat.system_in_user) system(chat, system_content);
    words(user);
    own(chat.user_close);
  }
};

void check_order(std::span<const ChatMessage> messages) {
  using Role = ChatMessage::Role;
  const std::size_t first = !messages.empty() && messages[0].role == Role::system ? 1 : 0;
  for (std::size_t i = first; i < messages.size(); ++i) {
    const Role due = (i - first) % 2 == 0 ? Role::user : Role::assistant;
    if (messages[i].role == due) continue;
    constexpr const char* kNames[] = {"system", "user", "assistant"};
    fail(
        ErrorCode::invalid_argument,
        "message {} of the chat is of role {}; user and assistant take turns, a user first, behind "
        "at most one system message",
        i, kNames[static_cast<std::size_t>(messages[i].role)]);
  }
  if ((messages.size() - first) % 2 == 0) {
    fail(ErrorCode::invalid_argument, "the chat has no user message at its end to answer");
  }
}

// White space, or a single character: nothing that steers a model.
bool is_mere_text(std::string_view token) {
  bool blank = true;
  std::size_t characters = 0;
  for (std::size_t at = 0; at < token.size(); ++characters) {
    blank = model::is_white_space(model::next_code_point(token, at)) && blank;
  }
  return blank || characters == 1;
}

// The template's own texts.
std::vector<std::string_view> parts_of(const ChatTemplate& chat) {
  return {chat.system_open, chat.system_close, chat.user_open,
          chat.user_close,  chat.turn_end,     chat.turn_gap};
}

// A newline that is an added token is one in messages too, so it does not count.
bool template_writes(const ChatTemplate& chat, std::string_view token) {
  if (is_mere_text(token)) return false;
  const std::vector<std::string_view> parts = parts_of(chat);
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) {
    return part.find(token) != std::string_view::npos;
  });
}

}  // namespace

struct ChatEncoder::State {
  const PromptEncoder* prompt;
  ChatTemplate chat;
  std::int32_t turn_end = -1;
  model::TokenFinder finder{};
  model::IdSet control{};  // what may not come out of a message

  const Tokenizer& tokenizer() const { return prompt->tokenizer(); }

  std::vector<std::int32_t> encode(const ChatText& text) const {
    const model::Foreign foreign{&control, text.foreign};
    return model::encode_text(tokenizer().parts(), finder, text.text, foreign);
  }
};

ChatEncoder::ChatEncoder(const PromptEncoder& prompt, ChatTemplate chat) {
  State state{&prompt, std::move(chat)};
  const Tokenizer& tokenizer = prompt.tokenizer();
  // A control token of the template is that token wherever it stands. A file may ask to look for it
  // in normalised text, where the two hands can no longer be told apart, or only between spaces.
  for (const auto& [id, entry] : tokenizer.parts().added.by_id) {
    model::AddedToken token = entry.token;
    if (token.special || template_writes(state.chat, token.content)) {
      token.single_word = false;
      state.control.add(id);
    } else if (token.normalized) {
      continue;
    }
    state.finder.add(token.content, token);
  }
  const std::string& turn_end = state.chat.turn_end;
  if (const auto id = tokenizer.id_of(turn_end); id && !turn_end.empty()) {
    state.turn_end = *id;
    if (!state.control.has(*id)) state.finder.add(turn_end, {.id = *id, .content = turn_end});
    state.control.add(*id);
  }
  state_ = std::make_unique<const State>(std::move(state));
}

ChatEncoder::~ChatEncoder() = default;
ChatEncoder::ChatEncoder(ChatEncoder&&) noexcept = default;
ChatEncoder& ChatEncoder::operator=(ChatEncoder&&) noexcept = default;

std::vector<std::int32_t> ChatEncoder::begin(std::span<const ChatMessage> messages) const {
  check_order(messages);
  const ChatTemplate& chat = state_->chat;
  std::string_view system;
  if (messages[0].role == ChatMessage::Role::system) {
    system = messages[0].content;
    messages = messages.subspan(1);
  }
  ChatText text;
  for (const ChatMessage& message : messages) {
    if (message.role == ChatMessage::Role::user) {
      text.turn(chat, message.content, std::exchange(system, {}));
    } else {
      text.words(message.content);
      text.own(chat.turn_end);
      text.own(chat.turn_gap);
    }
  }
  return state_->prompt->begin(state_->encode(text));
}

std::vector<std::int32_t> ChatEncoder::next(std::string_view user) const {
  ChatText text;
  text.own(state_->chat.turn_gap);
  text.turn(state_->chat, user, {});
  return state_->encode(text);
}

std::int32_t ChatEncoder::turn_end() const { return state_->turn_end; }
const ChatTemplate& ChatEncoder::chat() const { return state_->chat; }

}  // namespace tessera
