// Reads any bytes as the body of a request to the server: completions, chats, texts to tokenize.
// The first byte chooses which.
#include <filesystem>
#include <string>

#include "fuzz.h"
#include "model/checkpoint/json.h"
#include "server/api_error.h"
#include "server/generation_request.h"
#include "server/request_fields.h"

namespace {

// A model that can be asked and never runs.
struct Asked {
  Asked() {
    config.vocab = tokenizer.vocab_size();
    config.max_positions = 512;
    config.eos = {0};
  }

  tessera::Tokenizer tokenizer =
      tessera::Tokenizer::from_file("tests/data/tokenizers/tiny-gpt2.tokenizer.json");
  tessera::ModelConfig config{};
  tessera::PromptEncoder prompts{tokenizer, config, "tests/data/tokenizers"};
  tessera::ChatEncoder chat{prompts, tessera::chat_template("chatml")};
  tessera::server::ServedModel served{.name = "asked",
                                      .created = 0,
                                      .engine = nullptr,
                                      .context = 512,
                                      .config = config,
                                      .tokenizer = tokenizer,
                                      .prompts = prompts,
                                      .chat = &chat};
};

void read(std::uint8_t kind, std::string_view body, const Asked& asked) {
  using tessera::server::Body;
  if (kind % 4 < 2) {
    (void)tessera::server::read_generation(body, kind % 4 == 1, asked.served);
    return;
  }
  const auto json = tessera::model::parse_json(body, "the body");
  tessera::server::check_fields(json, kind % 4 == 2 ? Body::tokenize : Body::detokenize);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  static const Asked asked;
  // A list of token ids decodes to more bytes than it has.
  const tessera::fuzz::TimeBound bound(16 * size);
  tessera::fuzz::takes([&] {
    try {
      read(data[0], tessera::fuzz::text_of(data + 1, size - 1), asked);
    } catch (const tessera::server::ApiError& error) {  // held to the rules of an Error
      throw tessera::Error(tessera::ErrorCode::invalid_argument, error.what());
    }
  });
  return 0;
}
