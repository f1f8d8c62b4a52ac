// Answers several prompts at once: each step of the engine runs the next token of all of them.
//
//   many_requests MODEL_FOLDER [PROMPT...]
//
// Each answer is the one that its prompt gets alone: other requests change the speed, not the text.
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "tessera/tessera.h"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: many_requests MODEL_FOLDER [PROMPT...]\n");
    return 2;
  }
  const std::string folder = argv[1];
  std::vector<std::string> prompts(argv + 2, argv + argc);
  if (prompts.empty()) prompts = {"Once upon a time", "The little dog", "One day, Lily"};

  try {
    tessera::Context ctx;
    const std::unique_ptr<tessera::Model> model = tessera::load_model(ctx, folder);
    const tessera::Tokenizer tokenizer = tessera::Tokenizer::from_file(folder);
    const tessera::PromptEncoder encoder(tokenizer, model->config(), folder);

    // Takes all memory now: pages of keys and values for 8 sequences of the trained length. From
    // here on the engine has the Context for itself.
    tessera::Engine engine(ctx, *model, &tokenizer, {.max_sequences = 8});

    // Any thread may submit at any time. A request that can never run throws here; others go on.
    std::vector<tessera::RequestHandle> handles;
    for (const std::string& prompt : prompts) {
      tessera::Request request;
      request.prompt_ids = encoder.encode(prompt);
      request.options.max_tokens = 30;
      request.options.sampling.temperature = 0.8;
      request.options.sampling.seed = 7;
      handles.push_back(engine.submit(request));
    }
    // To get tokens one by one, use handle.next() or Request::on_event.
    std::size_t tokens = 0;
    for (std::size_t i = 0; i < handles.size(); ++i) {
      const tessera::GenerateResult result = handles[i].wait()[0];
      std::printf("%s%s\n\n", prompts[i].c_str(), result.text.c_str());
      tokens += result.ids.size();
    }
    // All answers are there; wait for the end of the last step, so that it is counted too.
    engine.drain_until(std::chrono::steady_clock::now() + std::chrono::seconds(1));
    std::printf("%zu tokens in %lld steps\n", tokens, static_cast<long long>(engine.stats().steps));
  } catch (const tessera::Error& error) {
    std::fprintf(stderr, "many_requests: %s\n", error.what());
    return 1;
  }
  return 0;
}
