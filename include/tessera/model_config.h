// What a checkpoint's config.json says about the model, read and checked once. Unknown options are
// refused by name.
//
// Threads: a value, as safe as an int.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tessera/dtype.h"
#include "tessera/linear.h"

namespace tessera {

enum class RopeScaling : std::uint8_t { none, linear, llama3 };

struct RopeConfig {
  std::int64_t dims = 0;  // elements of a head that are rotated
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1.0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  std::int64_t original_max_positions = 0;               // llama3
};

struct ModelConfig {
  std::string architecture{};  // model_type of config.json: "llama"
  std::int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, intermediate = 0;
  std::int64_t vocab = 0;
  std::int64_t max_positions = 0;  // the length the model was trained for
  double norm_eps = 1e-5;
  Activation activation = Activation::silu;
  bool tied_head = false;
  bool parallel_residual = false;  // attention and MLP read the same x
  bool qkv_bias = false, output_bias = false, mlp_bias = false;
  bool qk_norm = false;                 // RMSNorm of each head of q and k
  std::vector<std::int64_t> windows{};  // sliding window of each layer; 0: none
  RopeConfig rope{};
  DType stored_dtype = DType::f32;  // dtype of dense weights in the file
  std::int64_t bos = -1;            // -1: none
  std::vector<std::int64_t> eos{};  // any of them ends the text
};

// The frequencies of the rotary embedding, scaled as the config says: f32 [dims / 2].
std::vector<float> rope_frequencies(const RopeConfig& rope);

// Reads DIR/config.json and, if there is one, DIR/generation_config.json for the stop tokens.
ModelConfig read_model_config(const std::filesystem::path& directory);

}  // namespace tessera
