// A language model: the weights of a checkpoint, and the pass that turns tokens into logits. The
// same code runs on every device.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/context.h"
#include "tessera/kv_cache.h"
#include "tessera/model_config.h"
#include "tessera/quant.h"
#include "tessera/tensor.h"

namespace tessera {

struct LoadOptions {
  // Of activations and the KV cache. Not given: f32 on the CPU, the checkpoint's own on a GPU.
  std::optional<DType> dtype{};
  // Packs the dense linear layers while loading; layers the file has packed stay as they are.
  std::optional<QuantizeOptions> pack{};
  // Layers that `pack` leaves alone: names as in the file, without ".weight", where * stands for
  // anything ("*.attention.dense", "embed_out"). A pattern that matches nothing is refused.
  std::vector<std::string> keep_dense{};
  // Called while loading, with bytes done and in all.
  std::function<void(std::int64_t done, std::int64_t total)> progress{};
};

struct ForwardArgs {
  Tensor ids{};                     // i32 [tokens], on the model's device
  const CacheStep* step = nullptr;  // of `cache`, for as many tokens
  KvCache* cache = nullptr;
  Tensor logits{};  // f32 [rows, vocab]: of the last `rows` tokens; may be left out
  // Called with 0 after the embedding, i after layer i, and last (level = layers) after the final
  // norm in place of the last layer's own output, as transformers counts hidden states.
  // hidden: [tokens, hidden] of the model's dtype.
  std::function<void(std::int64_t level, const Tensor& hidden)> observe{};
};

// A layer of weights as `tessera info` and a precision plan see it.
struct LayerInfo {
  std::string name;  // "model.layers.0.mlp.up_proj"
  Weight weight;     // a view
};

class Model {
 public:
  virtual ~Model() = default;

  virtual void forward(Context& ctx, const ForwardArgs& args) const = 0;

  const ModelConfig& config() const { return config_; }
  DType dtype() const { return dtype_; }
  // The linear layers, head included, in the order of use.
  const std::vector<LayerInfo>& linear_layers() const { return linear_layers_; }
  // Memory of all weights, embedding included.
  std::int64_t weight_bytes() const { return weight_bytes_; }
  // What the checkpoint asks for and Tessera does not do, one sentence each ("activation
  // quantisation ... is not applied").
  const std::vector<std::string>& notes() const { return notes_; }
  // Scratch memory that a step over such a cache needs at most, whatever its length and that of the
  // stream: of the pass, of its ids, and of the logits of up to `logit_rows` tokens. Nothing runs
  // for it. 0: not known; the Context's workspace then grows as it goes.
  virtual std::int64_t workspace_bytes(Context& ctx, const KvCacheOptions& cache,
                                       std::int64_t logit_rows) const;
  // Sizes the Context's workspace for that once: no step after it allocates.
  void reserve_workspace(Context& ctx, const KvCacheOptions& cache, std::int64_t logit_rows) const;

  // A cache that fits the model; `policy` and sizes as given. Reserves the workspace of its steps.
  // Where the device has no room for both, Error (out_of_memory) says so before anything is
  // allocated: what each needs, what there is, and the largest cache that would fit.
  KvCache make_cache(Context& ctx, const CachePolicy& policy, std::int64_t max_tokens,
                     std::int64_t max_step = 256, std::int64_t logit_rows = 1) const;

 protected:
  ModelConfig config_;
  DType dtype_ = DType::f32;
  std::vector<LayerInfo> linear_layers_;
  std::int64_t weight_bytes_ = 0;
  std::vector<std::string> notes_;
};

// Reads a Hugging Face checkpoint: config.json, and model.safetensors or its shards. Weights stay
// as they are in the file (memory-mapped, packed formats packed) or in the layout the device's
// kernels want. Weights that the device has no room for are refused before any is loaded.
std::unique_ptr<Model> load_model(Context& ctx, const std::filesystem::path& directory,
                                  const LoadOptions& options = {});

}  // namespace tessera
