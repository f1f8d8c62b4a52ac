// The rotary part of config.json. Several generations of keys express the same few settings:
//
//                     old keys                            new: members of rope_parameters
//   theta             the architecture's own              rope_theta
//   share of a head   the architecture's own              partial_rotary_factor
//   scaling           rope_scaling.type, or .rope_type    rope_type
#include <cmath>
#include <initializer_list>
#include <optional>

#include "core/fail.h"
#include "model/architectures/config_parts.h"
#include "model/checkpoint/quote.h"

namespace tessera::model {
namespace {

constexpr double kDefaultTheta = 10000.0;

double positive(const JsonView& json, std::string_view key, double value) {
  if (std::isfinite(value) && value > 0) return value;
  fail(ErrorCode::file, "{}: {} is {}; it must be a positive number", json.where(), key, value);
}

// `key` of the rope object, if there is one; else the first of `keys` of the config.
double first_of(const JsonView& json, const JsonView* rope, const char* key,
                std::initializer_list<const char*> keys, double otherwise) {
  if (rope) {
    if (const auto value = rope->optional_number(key)) return positive(*rope, key, *value);
  }
  for (const char* other : keys) {
    if (const auto value = json.optional_number(other)) return positive(json, other, *value);
  }
  return otherwise;
}

double required_number(const JsonView& json, const char* key, const char* type) {
  if (const auto value = json.optional_number(key)) return positive(json, key, *value);
  fail(ErrorCode::file, "{}: rope type {} needs the key {}", json.where(), type, key);
}

void read_scaling(const JsonView& json, const JsonView& rope, const ModelConfig& config,
                  RopeConfig& to) {
  const std::string type =
      rope.optional_string("rope_type").value_or(rope.optional_string("type").value_or("default"));
  if (type == "default") return;
  if (type == "linear") {
    to.scaling = RopeScaling::linear;
    to.factor = required_number(rope, "factor", "linear");
  } else if (type == "llama3") {
    to.scaling = RopeScaling::llama3;
    to.factor = required_number(rope, "factor", "llama3");
    to.low_freq_factor = required_number(rope, "low_freq_factor", "llama3");
    to.high_freq_factor = required_number(rope, "high_freq_factor", "llama3");
    if (to.high_freq_factor <= to.low_freq_factor) {
      fail(ErrorCode::file, "{}: high_freq_factor {} must be greater than low_freq_factor {}",
           rope.where(), to.high_freq_factor, to.low_freq_factor);
    }
    const char* key = "original_max_position_embeddings";
    auto original = json.optional_integer(key, 1, kMaxTokens);
    if (!original) original = rope.optional_integer(key, 1, kMaxTokens);
    to.original_max_positions = original.value_or(config.max_positions);
  } else {
    fail(ErrorCode::file, "{}: rope type {} is not supported; supported: default, linear, llama3",
         rope.where(), in_quotes(type));
  }
}

// rope_scaling takes precedence over rope_parameters, as in transformers. An empty object is none.
std::optional<JsonView> rope_object(const JsonView& json) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    auto rope = json.optional_object(key);
    if (!rope || rope->json().empty()) continue;
    for (const char* layers : {"full_attention", "sliding_attention"}) {
      if (rope->has(layers)) {
        fail(ErrorCode::file,
             "{}: {} differs by layer type ({}), which is not supported; one set of parameters for "
             "all layers is",
             json.where(), key, layers);
      }
    }
    return rope;
  }
  return std::nullopt;
}

}  // namespace

double read_rotary_share(const JsonView& json, std::initializer_list<const char*> keys,
                         double otherwise) {
  const std::optional<JsonView> rope = rope_object(json);
  return first_of(json, rope ? &*rope : nullptr, "partial_rotary_factor", keys, otherwise);
}

RopeConfig read_rope(const JsonView& json, const ModelConfig& config,
                     std::initializer_list<const char*> theta_keys, double share) {
  const std::optional<JsonView> given = rope_object(json);
  const JsonView* rope = given ? &*given : nullptr;
  RopeConfig result;
  result.theta = first_of(json, rope, "rope_theta", theta_keys, kDefaultTheta);
  if (share > 1.0) {
    fail(ErrorCode::file, "{}: {} of each head is to be rotated; at most 1 (all of it) is accepted",
         json.where(), share);
  }
  result.dims = static_cast<std::int64_t>(static_cast<double>(config.head_dim) * share);
  if (result.dims < 2 || result.dims % 2 != 0) {
    fail(ErrorCode::file,
         "{}: {} of {} elements of a head are to be rotated; an even number from 2 on is accepted",
         json.where(), result.dims, config.head_dim);
  }
  if (rope) read_scaling(json, *rope, config, result);
  return result;
}

}  // namespace tessera::model
