// Reads any bytes as tokenizer.json, and runs the resulting tokenizer on any text. The input is the
// file, a zero byte, and the text. The ids to decode are made from the text's bytes.
#include <string>
#include <vector>

#include "fuzz.h"
#include "tessera/tokenizer.h"

namespace {

void use(const tessera::Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::int32_t> ids;
  if (tessera::fuzz::takes([&] { ids = tokenizer.encode(text, {.add_special = true}); })) {
    std::string whole, streamed;
    tessera::StreamDecoder decoder(tokenizer, false);
    const bool decoded = tessera::fuzz::takes([&] {
      whole = tokenizer.decode(ids);
      for (const std::int32_t id : ids) streamed += decoder.push(id);
      streamed += decoder.finish();
    });
    if (decoded && whole != streamed) std::abort();  // a stream must give the whole text
  }
  ids.clear();
  for (const char byte : text) ids.push_back(static_cast<signed char>(byte));  // some negative
  tessera::fuzz::takes([&] { (void)tokenizer.decode(ids, true); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input = tessera::fuzz::text_of(data, size);
  const std::size_t end = input.find('\0');
  const std::string_view json = input.substr(0, end);
  const std::string_view text =
      end == std::string_view::npos ? std::string_view("a b\n1 \xc3\xa9") : input.substr(end + 1);
  tessera::fuzz::takes([&] {
    const auto tokenizer = tessera::Tokenizer::from_json(json, "tokenizer.json");
    use(tokenizer, text);
  });
  return 0;
}
