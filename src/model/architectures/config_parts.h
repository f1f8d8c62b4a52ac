// Parts of config.json that several architectures have. An architecture calls those it needs from
// its read_options(); the sizes of `config` are known by then.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "model/checkpoint/json.h"
#include "tessera/model_config.h"

namespace tessera::model {

// Larger than any model; small enough that products of two fit easily.
inline constexpr std::int64_t kMaxLayers = 1 << 16, kMaxWidth = 1 << 24, kMaxHeads = 1 << 16,
                              kMaxHeadDim = 1 << 16, kMaxTokens = INT32_MAX;

// hidden_size / num_attention_heads; refuses heads that do not divide it.
std::int64_t width_per_head(const JsonView& json, const ModelConfig& config);

// ---- the rotary embedding: config_rope.cc -------------------------------------------------------

// The share of each head that is rotated: partial_rotary_factor of rope_parameters, else the first
// of these keys that is given, else the default.
double read_rotary_share(const JsonView& json, std::initializer_list<const char*> keys,
                         double otherwise);
// How the frequencies are made: rope_parameters (new) or rope_scaling (old) and, for theta, the
// first of these keys that is given.
RopeConfig read_rope(const JsonView& json, const ModelConfig& config,
                     std::initializer_list<const char*> theta_keys, double share);

// ---- sliding windows: config_windows.cc ---------------------------------------------------------

// How many keys a query sees, its own included; 0 if the key is null.
std::int64_t read_sliding_window(const JsonView& json, std::int64_t otherwise);

struct WindowRule {
  std::int64_t window = 0;              // of layers that have one; 0: no layer has
  std::int64_t full_layers = 0;         // how many first layers see everything
  bool mixed = false;                   // layer_types may name layers of both kinds
  const char* from = "sliding_window";  // where the window comes from, for messages
};
// The window of each layer: by layer_types if the config has it, else by the rule.
void read_windows(const JsonView& json, const WindowRule& rule, ModelConfig& config);

}  // namespace tessera::model
