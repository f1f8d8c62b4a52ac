// What `tessera verify` checks, and what it reports.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "reference/parity.h"
#include "tessera/context.h"
#include "tessera/model.h"
#include "tessera/trace.h"

namespace tessera::app {

struct VerifyRow {
  std::string what;    // "layer 3", "linear [768, 288] sliced"
  double max_abs = 0;  // largest distance
  double max_rel = 0;  // the same, over the largest value that was expected
  double bound = 0;    // of max_rel; 0: the row has no numbers
  std::string text{};  // instead of numbers
  bool ok = false;
};

struct VerifyCheck {
  std::string name;     // "hidden states"
  std::string verdict;  // one line
  std::vector<VerifyRow> rows{};
  bool ok() const;
};

struct VerifySubject {
  Context& ctx;
  const Model& model;
  std::filesystem::path directory;
  LoadOptions options;  // that the model was loaded with
  double bound;         // of hidden states and logits
  bool exact_tokens;    // greedy tokens must be the same; otherwise, near enough
};

// The largest error that a whole pass may have, relative to the largest value of a level. For f32
// it is what Tessera promises; for others, what rounding the activations costs, with some room.
double level_bound(DType dtype, bool int8_activations);

// Against a golden file.
std::vector<VerifyCheck> verify_golden(const VerifySubject& subject,
                                       const std::filesystem::path& golden);
// Against the float64 reference: hidden states and tokens. A model on a GPU, or in less than f32,
// is compared with the CPU in f32 as well. Then calls and time.
std::vector<VerifyCheck> verify_by_reference(const VerifySubject& subject);
// One decoding step makes exactly the calls that it should.
VerifyCheck verify_calls(const VerifySubject& subject);
// Every call for a prompt and one more token, with its time. Waits for a GPU after each call.
std::vector<TraceEntry> call_trace(const VerifySubject& subject);
// The kernels alone, on the model's shapes, in every layout of memory.
VerifyCheck verify_kernels(const VerifySubject& subject);

// ---- shared by the checks -----------------------------------------------------------------------

// The same ids for every run of a model, spread over its vocabulary.
inline constexpr std::int64_t kPromptTokens = 24;
std::vector<std::int32_t> fixed_prompt(const ModelConfig& config);

VerifyRow level_row(std::string what, const reference::Array& actual,
                    const reference::Array& expected, double bound);
// "embedding", "layer 1", ..., "final norm"
std::string level_name(std::int64_t level, std::int64_t layers);
// Greedy tokens against the expected ones. `logits` [tokens, vocab] are those of the text that both
// saw. A token that differs is a miss where its logit is further behind than the bound allows.
VerifyCheck token_check(const std::vector<std::int32_t>& actual,
                        const std::vector<std::int32_t>& expected, const reference::Array& logits,
                        const VerifySubject& subject);

}  // namespace tessera::app
