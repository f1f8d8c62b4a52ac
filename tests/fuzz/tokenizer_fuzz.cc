// Reads any bytes as tokenizer.json, and runs the resulting tokenizer on any text. The input is the
// file, a zero byte, and the text. The ids to decode are made from the text's bytes.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "fuzz.h"
#include "tessera/chat.h"
#include "tessera/tokenizer.h"

namespace {

using Ids = std::vector<std::int32_t>;
using tessera::fuzz::takes;

void decode(const tessera::Tokenizer& tokenizer, const Ids& ids) {
  std::string whole, streamed;
  tessera::StreamDecoder decoder(tokenizer, false);
  const bool decoded = takes([&] {
    whole = tokenizer.decode(ids);
    for (const std::int32_t id : ids) streamed += decoder.push(id);
    streamed += decoder.finish();
  });
  if (decoded && whole != streamed) std::abort();  // a stream must give the whole text
}

// A text of a size where quadratic time shows, made of the given one.
void encode_long(const tessera::Tokenizer& tokenizer, std::string_view text) {
  constexpr std::size_t kBytes = 128 << 10;
  std::string longer;
  while (longer.size() < kBytes) longer += text;
  tessera::fuzz::TimeBound bound(longer.size());
  Ids ids;
  if (!takes([&] { ids = tokenizer.encode(longer); })) return;
  bound.add(ids.size());
  decode(tokenizer, ids);
}

// Special tokens that stand for text: unknown characters, and bytes.
bool stands_for_text(const tessera::Tokenizer& tokenizer, const std::string& unk, std::int32_t id) {
  const std::string_view token = tokenizer.token(id);
  return token == unk || (token.size() == 6 && token.starts_with("<0x"));
}

// Words are not control tokens: neither alone nor in a turn, where they take none away either.
void check_words(const tessera::Tokenizer& tokenizer, const std::string& unk,
                 std::string_view text) {
  Ids ids;
  takes([&] { ids = tokenizer.encode(text, {.parse_special = false}); });
  for (const std::int32_t id : ids) {
    if (tokenizer.is_special(id) && !stands_for_text(tokenizer, unk, id)) std::abort();
  }
  const tessera::PromptEncoder prompt(tokenizer, {}, "no such folder");
  for (const char* name : {"chatml", "llama2"}) {
    const tessera::ChatEncoder chat(prompt, tessera::chat_template(name));
    const std::int32_t end = chat.turn_end();
    if (end < 0 || stands_for_text(tokenizer, unk, end)) continue;
    Ids with, without;
    const bool taken = takes([&] {
      with = chat.next(text);
      without = chat.next("");
    });
    const auto ends = [&](const Ids& of) { return std::count(of.begin(), of.end(), end); };
    if (taken && ends(with) != ends(without)) std::abort();
  }
}

std::string unk_token(std::string_view json) {
  auto file = nlohmann::json::parse(json);
  return file["model"].is_object() && file["model"]["unk_token"].is_string()
             ? file["model"]["unk_token"].get<std::string>()
             : std::string();
}

// True where the tokenizer takes the text.
bool use(const tessera::Tokenizer& tokenizer, std::string_view json, std::string_view text,
         tessera::fuzz::TimeBound& bound) {
  Ids ids;
  const bool taken = takes([&] { ids = tokenizer.encode(text, {.add_special = true}); });
  if (taken) {
    constexpr std::size_t kTimes = 6;  // that the text is encoded
    bound.add(kTimes * ids.size());
    decode(tokenizer, ids);
    check_words(tokenizer, unk_token(json), text);
  }
  ids.clear();
  for (const char byte : text) ids.push_back(static_cast<signed char>(byte));  // some negative
  takes([&] { (void)tokenizer.decode(ids, true); });
  return taken;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input = tessera::fuzz::text_of(data, size);
  const std::size_t end = input.find('\0');
  const std::string_view json = input.substr(0, end);
  const std::string_view text =
      end == std::string_view::npos ? std::string_view("a b\n1 \xc3\xa9") : input.substr(end + 1);
  takes([&] {
    std::optional<tessera::Tokenizer> tokenizer;
    bool taken = false;
    {
      tessera::fuzz::TimeBound bound(size);
      tokenizer = tessera::Tokenizer::from_json(json, "tokenizer.json");
      taken = use(*tokenizer, json, text, bound);
    }
    // One input in 32, chosen by itself: it takes as long as the others together.
    if (taken && text.size() > 1 && json.size() % 32 == 0) encode_long(*tokenizer, text);
  });
  return 0;
}
