// Compares a model with results computed elsewhere: goldens from transformers, or the float64
// reference. Tests and `tessera verify` share this.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "reference/array.h"
#include "tessera/context.h"
#include "tessera/model.h"

namespace tessera::reference {

// The contents of golden.safetensors.
struct Golden {
  std::vector<std::vector<std::int32_t>> prompts;  // input_ids
  std::vector<Array> levels;                       // hidden_states.i: [prompts, tokens, hidden]
  Array logits;                                    // [prompts, tokens, vocab]
  std::vector<std::int32_t> generated;             // of the first prompt
  std::map<std::string, Array> decoded;            // by tensor name: "....q_proj.weight"
};
Golden read_golden(const std::filesystem::path& file);

// The results of a model for a text, on any device.
struct Observed {
  std::vector<Array> levels;  // [tokens, hidden]
  Array logits;               // [tokens, vocab]
};
// Runs the text in steps of these sizes; the last size is repeated. Without sizes, all tokens are
// one step.
Observed observe(Context& ctx, const Model& model, std::span<const std::int32_t> ids,
                 std::span<const std::int64_t> steps = {});

struct Greedy {
  std::vector<std::int32_t> ids;
  std::vector<double> seconds;  // for each token except the first, whose time is the prompt's
};
Greedy generate_greedy(Context& ctx, const Model& model, std::span<const std::int32_t> prompt,
                       std::int64_t tokens);

// max_rel = max|actual - expected| / max|expected|. It is relative to the whole level, so that an
// element near zero does not decide. It is infinite if a number is not finite or the shapes differ.
struct Difference {
  double max_abs = 0, max_rel = 0;
};
Difference compare(const Array& actual, const Array& expected);

// One entry of the first dimension.
Array entry(const Array& array, std::int64_t index);

// The index of the largest element of each row; the first one if several are equal.
std::vector<std::int32_t> argmax_rows(const Array& rows);

}  // namespace tessera::reference
