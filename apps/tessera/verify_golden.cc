// Every level, the logits, the greedy tokens and decoded weights against a golden file.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/fail.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/packed_layouts.h"
#include "reference/modules.h"
#include "reference/parity.h"
#include "tessera/quant.h"
#include "verify.h"

namespace tessera::app {
namespace {

using reference::Array;
using reference::Golden;

void check_fit(const Golden& golden, const ModelConfig& config, const std::filesystem::path& file) {
  const auto require = [&](bool fits, const std::string& what) {
    if (!fits) {
      fail(ErrorCode::file, "{} is not a golden of this model: {}", file.string(), what);
    }
  };
  const auto levels = static_cast<std::int64_t>(golden.levels.size());
  require(
      levels == config.layers + 1,
      fmt::format("it has {} hidden states, but the model has {} layers", levels, config.layers));
  for (const Array& level : golden.levels) {
    require(level.shape.size() == 3 && level.size(2) == config.hidden,
            fmt::format("its hidden states are not [prompts, tokens, {}]", config.hidden));
  }
  require(golden.logits.shape.size() == 3 && golden.logits.size(2) == config.vocab,
          fmt::format("its logits are not [prompts, tokens, {}]", config.vocab));
  const auto in_vocab = [&](std::int32_t id) { return id >= 0 && id < config.vocab; };
  for (const auto& prompt : golden.prompts) {
    require(!prompt.empty() && std::all_of(prompt.begin(), prompt.end(), in_vocab),
            fmt::format("its input_ids are empty or beyond a vocabulary of {}", config.vocab));
  }
  require(!golden.generated.empty() &&
              std::all_of(golden.generated.begin(), golden.generated.end(), in_vocab),
          fmt::format("its generated_ids are empty or beyond a vocabulary of {}", config.vocab));
}

// The rows of all prompts one after the other: [prompts * tokens, n].
Array flattened(Array array) {
  array.shape = {array.size(0) * array.size(1), array.size(2)};
  return array;
}

void append(Array& to, const Array& rows) {
  if (to.shape.empty()) to.shape = {0, rows.size(1)};
  to.shape[0] += rows.size(0);
  to.data.insert(to.data.end(), rows.data.begin(), rows.data.end());
}

VerifyCheck levels_and_logits(const VerifySubject& subject, const Golden& golden) {
  const std::int64_t layers = subject.model.config().layers;
  std::vector<Array> levels(golden.levels.size());
  Array logits;
  for (const auto& prompt : golden.prompts) {
    const reference::Observed observed = reference::observe(subject.ctx, subject.model, prompt);
    for (std::size_t i = 0; i < levels.size(); ++i) append(levels[i], observed.levels[i]);
    append(logits, observed.logits);
  }
  VerifyCheck check{.name = "hidden states", .verdict = {}};
  for (std::size_t i = 0; i < levels.size(); ++i) {
    check.rows.push_back(level_row(level_name(static_cast<std::int64_t>(i), layers), levels[i],
                                   flattened(golden.levels[i]), subject.bound));
  }
  check.rows.push_back(level_row("logits", logits, flattened(golden.logits), subject.bound));
  check.verdict =
      fmt::format("{} prompts of {} tokens", golden.prompts.size(), golden.prompts.front().size());
  return check;
}

VerifyCheck tokens(const VerifySubject& subject, const Golden& golden) {
  std::vector<std::int32_t> text = golden.prompts.front();
  const auto prompt = static_cast<std::int64_t>(text.size());
  const auto count = static_cast<std::int64_t>(golden.generated.size());
  const auto actual =
      reference::generate_greedy(subject.ctx, subject.model, golden.prompts.front(), count).ids;
  // Where tokens may differ, this model's logits say how far behind the golden's token is.
  text.insert(text.end(), golden.generated.begin(), golden.generated.end() - 1);
  const Array logits = reference::observe(subject.ctx, subject.model, text).logits;
  Array last({count, logits.size(1)});
  std::copy(logits.data.begin() + (prompt - 1) * logits.size(1), logits.data.end(),
            last.data.begin());
  const auto judged = subject.exact_tokens ? actual : reference::argmax_rows(last);
  return token_check(judged, golden.generated, last, subject);
}

VerifyCheck decoded_weights(const VerifySubject& subject, const Golden& golden) {
  VerifyCheck check{.name = "decoded weights", .verdict = {}};
  Context cpu({.threads = subject.ctx.threads()});
  const auto checkpoint = model::Checkpoint::open(subject.directory);
  const model::PackedLayouts layouts(*checkpoint);
  for (const auto& [name, expected] : golden.decoded) {
    const std::string module = name.substr(0, name.rfind('.'));
    if (expected.shape.size() != 2 || !layouts.is_packed(module)) {
      fail(ErrorCode::file,
           "the golden has a decoded {}, which is not a packed matrix of the model", name);
    }
    const PackedWeight packed = layouts.read(module, expected.size(0), expected.size(1));
    Buffer buffer(DType::f32, {expected.size(0), expected.size(1)});
    const Tensor decoded = buffer.tensor(DType::f32, {expected.size(0), expected.size(1)});
    dequantize(cpu, packed.weight, decoded);
    constexpr double kDecodedBound = 1e-6;  // products of two or three f32 numbers
    check.rows.push_back(level_row(module, reference::to_array(decoded), expected, kDecodedBound));
  }
  check.verdict = fmt::format("{} packed layers decoded", check.rows.size());
  return check;
}

}  // namespace

std::vector<VerifyCheck> verify_golden(const VerifySubject& subject,
                                       const std::filesystem::path& file) {
  const Golden golden = reference::read_golden(file);
  check_fit(golden, subject.model.config(), file);
  std::vector<VerifyCheck> checks{levels_and_logits(subject, golden), tokens(subject, golden)};
  if (!golden.decoded.empty()) checks.push_back(decoded_weights(subject, golden));
  return checks;
}

}  // namespace tessera::app
