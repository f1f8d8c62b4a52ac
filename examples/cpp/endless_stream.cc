// Generates far more tokens than the model was trained for, in constant memory.
//
//   endless_stream MODEL_FOLDER [TOKENS]
//
// The cache keeps the first few tokens (the attention sinks) and a window of the last ones. Keys
// are rotated by their position in the cache as they are read, so the model never sees a position
// beyond the ones it was trained on, however long the stream gets.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tessera/tessera.h"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: endless_stream MODEL_FOLDER [TOKENS]\n");
    return 2;
  }
  const std::string folder = argv[1];
  const long tokens = argc > 2 ? std::atol(argv[2]) : 2000;

  try {
    tessera::Context ctx;
    const std::unique_ptr<tessera::Model> model = tessera::load_model(ctx, folder);
    const tessera::Tokenizer tokenizer = tessera::Tokenizer::from_file(folder);

    // Sinks and window together stay within the length the model was trained for.
    const std::int64_t trained = model->config().max_positions, sinks = 4;
    const tessera::CachePolicy policy = tessera::CachePolicy::sinks(sinks, trained - sinks);
    tessera::KvCache cache = model->make_cache(ctx, policy, /*max_tokens=*/0);
    const std::int64_t bytes = cache.bytes();

    tessera::GenerateOptions options;
    options.max_tokens = tokens;  // -1 would run until the program is stopped
    options.ignore_eos = true;
    options.sampling.temperature = 0.8;
    options.sampling.seed = 1;

    // The text of the last tokens, to show that it is still text.
    std::string tail;
    const std::vector<std::int32_t> prompt = tokenizer.encode("One day,", {.add_special = true});
    const tessera::GenerateResult result = tessera::generate(
        ctx, *model, cache, &tokenizer, prompt, options, [&](const tessera::GeneratedToken& token) {
          tail += token.text;
          if (tail.size() > 400) tail.erase(0, tail.size() - 300);
        });

    std::printf("... %s\n\n", tail.substr(std::min(tail.size(), tail.find(' '))).c_str());
    std::printf("trained for %lld tokens, streamed %lld, kept %lld\n",
                static_cast<long long>(trained), static_cast<long long>(cache.seen()),
                static_cast<long long>(cache.kept()));
    std::printf("cache: %.1f MiB before, %.1f MiB after; %.0f tokens/s\n",
                static_cast<double>(bytes) / (1 << 20),
                static_cast<double>(cache.bytes()) / (1 << 20),
                static_cast<double>(result.ids.size() - 1) / result.decode_seconds);
    return cache.bytes() == bytes ? 0 : 1;
  } catch (const tessera::Error& error) {
    std::fprintf(stderr, "endless_stream: %s\n", error.what());
    return 1;
  }
}
