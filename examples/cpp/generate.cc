// Generates text with a Hugging Face checkpoint.
//
//   generate MODEL_FOLDER [PROMPT] [TOKENS]
//
// With models/stories, the bundled model, it tells a short story. The same seed gives the same
// story every time.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tessera/tessera.h"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: generate MODEL_FOLDER [PROMPT] [TOKENS]\n");
    return 2;
  }
  const std::string folder = argv[1];
  const std::string prompt = argc > 2 ? argv[2] : "Once upon a time";
  const long tokens = argc > 3 ? std::atol(argv[3]) : 60;

  try {
    // Where the work runs. On a GPU: tessera::Context ctx({.device = tessera::Device::cuda()});
    tessera::Context ctx;

    // The weights stay in the mapped file. To pack them to 4 bits while loading, pass
    // {.pack = tessera::QuantizeOptions{.format = tessera::Format::nvfp4}} as the last argument.
    const std::unique_ptr<tessera::Model> model = tessera::load_model(ctx, folder);
    const tessera::Tokenizer tokenizer = tessera::Tokenizer::from_file(folder);

    // Room for the prompt and every new token.
    const std::vector<std::int32_t> ids = tokenizer.encode(prompt, {.add_special = true});
    tessera::KvCache cache = model->make_cache(ctx, tessera::CachePolicy::full(),
                                               static_cast<std::int64_t>(ids.size()) + tokens);

    tessera::GenerateOptions options;
    options.max_tokens = tokens;
    options.sampling.temperature = 0.8;
    options.sampling.top_p = 0.95;
    options.sampling.seed = 7;

    // Tokens are printed as they come. The result holds the whole text as well.
    std::printf("%s", prompt.c_str());
    const tessera::GenerateResult result = tessera::generate(
        ctx, *model, cache, &tokenizer, ids, options, [](const tessera::GeneratedToken& token) {
          std::printf("%s", token.text.c_str());
          std::fflush(stdout);
        });

    const std::string reason(tessera::name(result.reason));
    std::printf("\n\n%zu tokens, %.0f tokens/s, ended by %s\n", result.ids.size(),
                static_cast<double>(result.ids.size() - 1) / result.decode_seconds, reason.c_str());
  } catch (const tessera::Error& error) {
    std::fprintf(stderr, "generate: %s\n", error.what());
    return 1;
  }
  return 0;
}
