#include "reference/parity.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "core/fail.h"
#include "model/checkpoint/mapped_file.h"
#include "model/checkpoint/safetensors.h"
#include "reference/modules.h"
#include "tessera/buffer.h"

namespace tessera::reference {
namespace {

// The elements of a contiguous tensor on any device.
Array on_host(Context& ctx, const Tensor& tensor) {
  Tensor host = tensor;
  Buffer copy;
  if (!tensor.device.is_cpu()) {
    copy = Buffer(tensor.bytes());
    copy_bytes(ctx, copy.data(), Device::cpu(), tensor.data, tensor.device, tensor.bytes());
    host.data = copy.data();
    host.device = Device::cpu();
  }
  return to_array(host);
}

// Appends rows.
void append(Array& to, const Array& rows) {
  if (to.shape.empty()) to.shape = {0, rows.size(1)};
  to.shape[0] += rows.size(0);
  to.data.insert(to.data.end(), rows.data.begin(), rows.data.end());
}

// Memory for the logits of a step on the model's device.
class StepLogits {
 public:
  StepLogits(Context& ctx, const Model& model, std::int64_t tokens)
      : logits_(DType::f32, {tokens, model.config().vocab}, ctx.device()),
        vocab_(model.config().vocab) {}

  Tensor rows(std::int64_t count) const { return logits_.tensor(DType::f32, {count, vocab_}); }

 private:
  Buffer logits_;
  std::int64_t vocab_;
};

std::vector<std::int32_t> token_ids(const model::StoredTensor& stored, std::int64_t row) {
  const Tensor tensor = stored.tensor();
  if (tensor.dtype != DType::i64 || tensor.rank != 2) {
    fail(ErrorCode::file, "golden: {} must be I64 [rows, tokens]", to_string(stored));
  }
  const auto* from = tensor.ptr<const std::int64_t>() + row * tensor.size(1);
  return {from, from + tensor.size(1)};
}

}  // namespace

Golden read_golden(const std::filesystem::path& file) {
  const model::MappedFile mapped(file);
  const model::SafetensorsHeader header = model::parse_safetensors(mapped.bytes(), file.string());
  std::map<std::string, const model::StoredTensor*> by_name;
  for (const model::StoredTensor& tensor : header.tensors) by_name[tensor.name] = &tensor;
  const auto at = [&](const std::string& name) -> const model::StoredTensor& {
    const auto found = by_name.find(name);
    if (found != by_name.end()) return *found->second;
    fail(ErrorCode::file,
         "{}: there is no tensor {}; a golden has input_ids, hidden_states.0 ... "
         "hidden_states.N, logits and generated_ids",
         file.string(), name);
  };

  Golden golden;
  const model::StoredTensor& ids = at("input_ids");
  for (std::int64_t row = 0; row < ids.shape.at(0); ++row) {
    golden.prompts.push_back(token_ids(ids, row));
  }
  golden.generated = token_ids(at("generated_ids"), 0);
  golden.logits = to_array(at("logits").tensor());
  golden.levels.push_back(to_array(at("hidden_states.0").tensor()));
  for (int level = 1; by_name.contains("hidden_states." + std::to_string(level)); ++level) {
    golden.levels.push_back(to_array(at("hidden_states." + std::to_string(level)).tensor()));
  }
  const std::string prefix = "decoded.";
  for (const auto& [name, tensor] : by_name) {
    if (name.starts_with(prefix))
      golden.decoded[name.substr(prefix.size())] = to_array(tensor->tensor());
  }
  return golden;
}

Observed observe(Context& ctx, const Model& model, std::span<const std::int32_t> ids,
                 std::span<const std::int64_t> steps) {
  const auto total = static_cast<std::int64_t>(ids.size());
  // Keys and values as exact as the model, whatever generation stores.
  KvCache cache =
      model.make_cache(ctx, CachePolicy::full(), total, total, /*logit_rows=*/1, model.dtype());
  const StepLogits room(ctx, model, total);
  Observed observed;
  observed.levels.resize(static_cast<std::size_t>(model.config().layers + 1));
  std::size_t next = 0;
  for (std::int64_t done = 0; done < total;) {
    const std::int64_t size = steps.empty() ? total : steps[std::min(next++, steps.size() - 1)];
    const std::int64_t tokens = std::min(size, total - done);
    const auto part = ids.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(tokens));
    const CacheStep& step = cache.step(ctx, part, tokens);
    const Tensor logits = room.rows(tokens);
    model.forward(
        ctx,
        {.step = &step, .logits = logits, .observe = [&](std::int64_t level, const Tensor& hidden) {
           append(observed.levels[static_cast<std::size_t>(level)], on_host(ctx, hidden));
         }});
    append(observed.logits, on_host(ctx, logits));
    done += tokens;
  }
  return observed;
}

Greedy generate_greedy(Context& ctx, const Model& model, std::span<const std::int32_t> prompt,
                       std::int64_t tokens) {
  const auto length = static_cast<std::int64_t>(prompt.size());
  KvCache cache = model.make_cache(ctx, CachePolicy::full(), length + tokens, length,
                                   /*logit_rows=*/1, model.dtype());
  const StepLogits room(ctx, model, 1);
  Greedy greedy;
  std::vector<std::int32_t> input(prompt.begin(), prompt.end());
  auto start = std::chrono::steady_clock::now();
  while (static_cast<std::int64_t>(greedy.ids.size()) < tokens) {
    const CacheStep& step = cache.step(ctx, input);
    const Tensor logits = room.rows(1);
    model.forward(ctx, {.step = &step, .logits = logits});
    input = argmax_rows(on_host(ctx, logits));
    const auto now = std::chrono::steady_clock::now();
    if (!greedy.ids.empty()) {
      greedy.seconds.push_back(std::chrono::duration<double>(now - start).count());
    }
    start = now;
    greedy.ids.push_back(input.front());
  }
  return greedy;
}

Difference compare(const Array& actual, const Array& expected) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (actual.shape != expected.shape) return {kInfinity, kInfinity};
  double max_abs = 0, largest = 0;
  for (std::size_t i = 0; i < actual.data.size(); ++i) {
    const double distance = std::abs(actual.data[i] - expected.data[i]);
    if (!std::isfinite(distance)) return {kInfinity, kInfinity};
    max_abs = std::max(max_abs, distance);
    largest = std::max(largest, std::abs(expected.data[i]));
  }
  return {max_abs, max_abs == 0 ? 0 : max_abs / largest};
}

Array entry(const Array& array, std::int64_t index) {
  Array one(std::vector<std::int64_t>(array.shape.begin() + 1, array.shape.end()));
  std::copy_n(array.data.begin() + index * one.numel(), one.numel(), one.data.begin());
  return one;
}

std::vector<std::int32_t> argmax_rows(const Array& rows) {
  std::vector<std::int32_t> result;
  for (std::int64_t row = 0; row < rows.size(0); ++row) {
    const auto begin = rows.data.begin() + row * rows.size(1);
    result.push_back(
        static_cast<std::int32_t>(std::max_element(begin, begin + rows.size(1)) - begin));
  }
  return result;
}

}  // namespace tessera::reference
