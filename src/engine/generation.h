// One text in the making: draws count, tokens become text, and the text ends for a reason. It knows
// nothing of the model's pass: EngineCore runs that, and brings it the drawn tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/text_out.h"
#include "tessera/generate.h"
#include "tessera/model_config.h"
#include "tessera/sampling.h"

namespace tessera {

// Refuses options that are out of range, stop strings without a tokenizer, an empty prompt and ids
// that are not in the vocabulary.
void check_generation(const GenerateOptions& options, const Tokenizer* tokenizer,
                      std::span<const std::int32_t> prompt, std::int64_t vocab);

class Generation {
 public:
  // `config` must outlive this. Keeps a copy of the options; nothing refers to the prompt later.
  Generation(const ModelConfig& config, const Tokenizer* tokenizer, const GenerateOptions& options,
             std::span<const std::int32_t> prompt);

  Sampler& sampler() { return sampler_; }
  const GenerateOptions& options() const { return options_; }
  bool is_cancelled() const;

  // Takes a drawn token that sampler() has accepted, and returns it with its text. Afterwards
  // reason() says whether the text ends here. `has_room`: the cache takes another token.
  GeneratedToken take(const Sampled& sampled, bool has_room);
  // Ends the text between two tokens. Returns the text that was held back.
  std::string end(StopReason reason);

  std::optional<StopReason> reason() const { return reason_; }
  const GenerateResult& result() const { return result_; }
  GenerateResult& result() { return result_; }

 private:
  bool is_end_token(std::int32_t id) const;

  const ModelConfig& config_;
  GenerateOptions options_;
  Sampler sampler_;
  TextOut text_;
  GenerateResult result_;
  std::optional<StopReason> reason_;
};

}  // namespace tessera
