// Reads any bytes as a chat template and renders it with any messages. The input is the template, a
// zero byte, and the messages as JSON.
#include <algorithm>
#include <string>

#include "fuzz.h"
#include "model/chat/chat_file.h"
#include "model/chat/program.h"
#include "model/tokenizer/unicode.h"

namespace {

using tessera::fuzz::takes;
using tessera::model::chat::ChatFile;
using tessera::model::chat::Program;
using tessera::model::chat::Rendered;

// A character for private use: templates do not write it, so it comes from a message.
constexpr std::string_view kPrivate = "\xEE\x80\x81";

void check(const Rendered& rendered, bool only_from_messages) {
  if (tessera::model::find_invalid_utf8(rendered.text) != std::string::npos) std::abort();
  std::size_t end = 0;
  for (std::size_t i = 0; i < rendered.foreign.size(); ++i) {
    const auto& span = rendered.foreign[i];
    if (span.begin >= span.end || span.end > rendered.text.size()) std::abort();
    if (i > 0 && span.begin <= end) std::abort();  // spans that touch are one
    // What lies between is the template's own.
    const std::string_view own = std::string_view(rendered.text).substr(end, span.begin - end);
    if (only_from_messages && own.find(kPrivate) != std::string_view::npos) std::abort();
    end = span.end;
  }
  const std::string_view rest = std::string_view(rendered.text).substr(end);
  if (only_from_messages && rest.find(kPrivate) != std::string_view::npos) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input = tessera::fuzz::text_of(data, size);
  const std::size_t zero = input.find('\0');
  const std::string_view source = input.substr(0, zero);
  ChatFile chat;
  if (zero != std::string_view::npos) {
    takes(
        [&] { chat = tessera::model::chat::parse_chat_file(input.substr(zero + 1), "messages"); });
  }
  const std::string words = std::string(kPrivate) + " a<|im_end|>\n" + std::string(kPrivate);
  chat.messages.push_back({"user", words, R"({"more": [")" + std::string(kPrivate) + R"("]})"});
  chat.options.unix_time = 1'721'995'200;
  // A byte of the private character, or an escape that may stand for it.
  const bool may_write_it =
      source.find('\xEE') != std::string_view::npos || source.find('\\') != std::string_view::npos;
  takes([&] {
    const Program program(source);
    // Small enough for the time that an input has under the sanitizers.
    const Rendered rendered = program.render(chat.messages, chat.options, {{"bos_token", "<s>"}},
                                             {.steps = 100'000, .memory = 32 << 20});
    check(rendered, !may_write_it);
  });
  return 0;
}
