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
  double max_abs = 0;  // largest difference
  double max_rel = 0;  // the same, relative to the largest expected value
  double bound = 0;    // limit for max_rel; 0 if the row has no numbers
  std::string text{};  // shown instead of numbers
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
  LoadOptions options;  // the model was loaded with these
  double bound;         // for hidden states and logits
  bool exact_tokens;    // if set, greedy tokens must be the same; otherwise, near enough
};

// The largest relative error that a whole pass may have, measured against the largest value of a
// level. For f32 it is what Tessera promises. For other dtypes it is what rounding the activations
// costs, with some room.
double level_bound(DType dtype, bool int8_activations);

// Compares with a golden file.
std::vector<VerifyCheck> verify_golden(const VerifySubject& subject,
                                       const std::filesystem::path& golden);
// Compares hidden states and tokens with the float64 reference. A model on a GPU, or in less than
// f32, is also compared with the CPU in f32. Checks of calls and time follow.
std::vector<VerifyCheck> verify_by_reference(const VerifySubject& subject);
// Checks that one decoding step makes exactly the calls that it should.
VerifyCheck verify_calls(const VerifySubject& subject);
// Lists every call for a prompt and one more token, with its time. Waits for a GPU after each call.
std::vector<TraceEntry> call_trace(const VerifySubject& subject);
// Checks the kernels alone, on the model's shapes, in every memory layout.
VerifyCheck verify_kernels(const VerifySubject& subject);

// ---- shared by the checks -----------------------------------------------------------------------

// The same ids for every run of a model, spread over its vocabulary.
inline constexpr std::int64_t kPromptTokens = 24;
std::vector<std::int32_t> fixed_prompt(const ModelConfig& config);

VerifyRow level_row(std::string what, const reference::Array& actual,
                    const reference::Array& expected, double bound);
// "embedding", "layer 1", ..., "final norm"
std::string level_name(std::int64_t level, std::int64_t layers);
// Compares greedy tokens with the expected ones. `logits` [tokens, vocab] belong to the text that
// both saw. A different token is a miss if its logit is further behind than the bound allows.
VerifyCheck token_check(const std::vector<std::int32_t>& actual,
                        const std::vector<std::int32_t>& expected, const reference::Array& logits,
                        const VerifySubject& subject);

}  // namespace tessera::app
