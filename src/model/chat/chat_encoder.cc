#include <algorithm>
#include <array>
#include <utility>

#include "core/fail.h"
#include "model/chat/program.h"
#include "model/tokenizer/encode_text.h"
#include "model/tokenizer/unicode.h"
#include "tessera/chat.h"

namespace tessera {
namespace {

using model::chat::Program;
using model::chat::Rendered;

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kAssistant = "assistant";
// The answer of a conversation that is rendered only to see what the template writes after one.
constexpr std::string_view kProbe = "TheAnswerThatIsLookedFor";

// White space, or a single character: nothing that steers a model.
bool is_mere_text(std::string_view token) {
  bool blank = true;
  std::size_t characters = 0;
  for (std::size_t at = 0; at < token.size(); ++characters) {
    blank = model::is_white_space(model::next_code_point(token, at)) && blank;
  }
  return blank || characters == 1;
}

bool is_in_literals(const Program& program, std::string_view text) {
  const auto& literals = program.literals();
  return std::any_of(literals.begin(), literals.end(), [&](const std::string& literal) {
    return literal.find(text) != std::string::npos;
  });
}

// Whether the template writes this token, whole or as '<|' + role + '|>'. A newline does not count:
// if it is an added token, it is one in messages too.
bool template_writes(const Program& program, std::string_view token) {
  if (is_mere_text(token)) return false;
  if (is_in_literals(program, token)) return true;
  const auto roles = model::chat::known_roles();
  return std::any_of(roles.begin(), roles.end(), [&](std::string_view role) {
    const std::size_t at = token.find(role);
    return at != std::string_view::npos && is_in_literals(program, token.substr(0, at)) &&
           is_in_literals(program, token.substr(at + role.size()));
  });
}

// A rendered text from an offset on.
Rendered tail_of(const Rendered& whole, std::size_t from) {
  Rendered tail{whole.text.substr(from), {}};
  for (const model::Span& span : whole.foreign) {
    if (span.end > from)
      tail.foreign.push_back({std::max(span.begin, from) - from, span.end - from});
  }
  return tail;
}

}  // namespace

struct ChatEncoder::State {
  const PromptEncoder* prompt;
  ChatTemplate chat;
  Program program;
  std::int32_t turn_end = -1;
  std::string turn_end_text{};
  model::TokenFinder finder{};
  model::IdSet control{};  // what may not come out of a message

  State(const PromptEncoder& encoder, ChatTemplate layout)
      : prompt(&encoder), chat(std::move(layout)), program(chat.source) {}

  const Tokenizer& tokenizer() const { return prompt->tokenizer(); }

  Rendered render(std::span<const ChatMessage> messages, const ChatOptions& options) const {
    return program.render(messages, options, chat.tokens);
  }

  std::vector<std::int32_t> encode(const Rendered& rendered) const {
    const model::Foreign foreign{&control, rendered.foreign};
    return model::encode_text(tokenizer().parts(), finder, rendered.text, foreign);
  }

  void find_control_tokens();
  void find_turn_end();
  std::optional<std::vector<std::int32_t>> encode_behind(const Rendered& whole,
                                                         std::size_t answer_end) const;
};

// A control token that the template writes is always that token. A tokenizer's file may restrict it
// to normalised text, in which template and message can no longer be distinguished, or to places
// between spaces; both are ignored.
void ChatEncoder::State::find_control_tokens() {
  for (const auto& [id, entry] : tokenizer().parts().added.by_id) {
    model::AddedToken token = entry.token;
    if (token.special || template_writes(program, token.content)) {
      token.single_word = false;
      control.add(id);
    } else if (token.normalized) {
      continue;
    }
    finder.add(token.content, token);
  }
}

// The first token after an answer, if it is a control token.
void ChatEncoder::State::find_turn_end() {
  const std::array<ChatMessage, 2> messages = {
      {{"user", "?"}, {std::string(kAssistant), std::string(kProbe)}}};
  std::string behind;
  try {
    behind = render(messages, {.add_generation_prompt = false}).text;
  } catch (const Error&) {
    return;  // a template that does not take a plain conversation
  }
  const std::size_t probe = behind.find(kProbe);
  if (probe == std::string::npos) return;
  const std::size_t begin = behind.find_first_not_of(kBlanks, probe + kProbe.size());
  if (begin == std::string::npos) return;
  behind.erase(0, begin);
  for (const auto& [id, entry] : tokenizer().parts().added.by_id) {
    const std::string& content = entry.token.content;
    if (!control.has(id) || content.size() <= turn_end_text.size()) continue;
    if (behind.starts_with(content)) {
      turn_end = id;
      turn_end_text = content;
    }
  }
  if (turn_end >= 0 || behind[0] != '<') return;
  // In some files it is an ordinary word.
  const std::string word = behind.substr(0, behind.find('>') + 1);
  const auto id = tokenizer().id_of(word);
  if (word.empty() || !id) return;
  turn_end = *id;
  turn_end_text = word;
  control.add(*id);
  finder.add(word, {.id = *id, .content = word});
}

// The ids of the text after an answer that ends at `answer_end` and its turn_end. The text is
// encoded from turn_end on, so that it is cut into tokens as in the whole.
std::optional<std::vector<std::int32_t>> ChatEncoder::State::encode_behind(
    const Rendered& whole, std::size_t answer_end) const {
  if (turn_end < 0) return encode(tail_of(whole, answer_end));
  const std::size_t begin = whole.text.find_first_not_of(kBlanks, answer_end);
  if (begin == std::string::npos ||
      whole.text.compare(begin, turn_end_text.size(), turn_end_text) != 0) {
    return std::nullopt;
  }
  std::vector<std::int32_t> ids = encode(tail_of(whole, begin));
  if (ids.empty() || ids[0] != turn_end) return std::nullopt;
  ids.erase(ids.begin());
  return ids;
}

ChatEncoder::ChatEncoder(const PromptEncoder& prompt, ChatTemplate chat) {
  auto state = std::make_unique<State>(prompt, std::move(chat));
  state->find_control_tokens();
  state->find_turn_end();
  state_ = std::move(state);
}

ChatEncoder::~ChatEncoder() = default;
ChatEncoder::ChatEncoder(ChatEncoder&&) noexcept = default;
ChatEncoder& ChatEncoder::operator=(ChatEncoder&&) noexcept = default;

std::string ChatEncoder::render(std::span<const ChatMessage> messages,
                                const ChatOptions& options) const {
  return state_->render(messages, options).text;
}

std::vector<std::int32_t> ChatEncoder::encode(std::span<const ChatMessage> messages,
                                              const ChatOptions& options) const {
  std::vector<std::int32_t> ids = state_->encode(state_->render(messages, options));
  return state_->chat.begins_as_prompt ? state_->prompt->begin(std::move(ids)) : ids;
}

std::optional<std::vector<std::int32_t>> ChatEncoder::encode_after_answer(
    std::span<const ChatMessage> messages, const ChatOptions& options) const {
  std::size_t answer = messages.size();
  while (answer > 0 && messages[answer - 1].role != kAssistant) --answer;
  if (answer == 0) fail(ErrorCode::invalid_argument, "the chat has no assistant message");
  --answer;
  ChatOptions before_options = options;
  before_options.add_generation_prompt = true;
  const std::string read =
      state_->render(messages.first(answer), before_options).text + messages[answer].content;
  const Rendered whole = state_->render(messages, options);
  if (!whole.text.starts_with(read)) return std::nullopt;
  return state_->encode_behind(whole, read.size());
}

std::vector<std::int32_t> ChatEncoder::next(std::string_view user,
                                            const ChatOptions& options) const {
  const std::array<ChatMessage, 3> messages = {
      {{"user", "?"}, {std::string(kAssistant), std::string(kProbe)}, {"user", std::string(user)}}};
  const Rendered whole = state_->render(messages, options);
  const std::size_t answer = whole.text.find(kProbe);
  if (answer != std::string::npos) {
    if (auto ids = state_->encode_behind(whole, answer + kProbe.size())) return *std::move(ids);
  }
  fail(ErrorCode::unsupported,
       "the chat template rewrites the answers of earlier turns, so no stream can be continued "
       "with it; choose another template by name");
}

std::int32_t ChatEncoder::turn_end() const { return state_->turn_end; }
const ChatTemplate& ChatEncoder::chat() const { return state_->chat; }

}  // namespace tessera
