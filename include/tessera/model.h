// A language model: the weights of a checkpoint, and the pass that turns tokens into logits. The
// same code runs on every device.
//
// Threads: a loaded model never changes. Several Contexts may use one model at the same time, each
// on its own thread and with its own KvCache; they must be on the device the model was loaded on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/cache_batch.h"
#include "tessera/context.h"
#include "tessera/kv_cache.h"
#include "tessera/model_config.h"
#include "tessera/page_pool.h"
#include "tessera/quant.h"
#include "tessera/tensor.h"

namespace tessera {

class Communicator;  // tessera/communicator.h
class ContextPass;   // src/model/architectures/context_pass.h

// How the files of weights are read.
enum class FileAccess {
  // Mapped: loads at once, and the memory is shared with other programs. Nobody may write to the
  // files while the model lives, or the process may end with SIGBUS. Replace them by renaming new
  // ones over them, which is safe.
  map,
  // Read into memory, which takes as much memory as the files are large. The files may then change.
  copy,
  // Maps files that, by mode, owner and folder, only this user and root can change; copies others.
  map_if_private,
};

struct LoadOptions {
  // Of activations and the KV cache. Default: f32 on the CPU, the checkpoint's own on a GPU.
  std::optional<DType> dtype{};
  // Packs the dense linear layers while loading. Layers that are packed in the file stay as they
  // are.
  std::optional<QuantizeOptions> pack{};
  // With `pack`: the token embedding is packed as well, and a head that is tied to it shares it.
  bool pack_embedding = false;
  // Layers that `pack` leaves alone: names as in the file, without ".weight"; * stands for anything
  // ("*.attention.dense", "embed_out"). A pattern that matches nothing is refused.
  std::vector<std::string> keep_dense{};
  FileAccess files = FileAccess::map;
  // Tensor parallelism: this process holds one part of the model, the other ranks hold the others.
  // config() then has the heads and inner features of the part. Every rank calls forward() at the
  // same time, with the same step over its own cache; src/model/parallel_model.h does that. Must
  // outlive the model. Null: the whole model.
  Communicator* tensor_parallel = nullptr;
  // Context parallelism: every rank has the whole model, and a part of the pages of keys and
  // values; the rows of a long step are spread over the ranks. Cannot be combined with
  // tensor_parallel; the same rules apply.
  Communicator* context_parallel = nullptr;
  // On a GPU, a step of one token runs all layers in one kernel, if the model has one
  // (tessera/decode_layers.h). In steps of few tokens, independent halves of a layer run side by
  // side. False: op by op, one after the other, for comparisons.
  bool fuse_layers = true;
  // Called while loading, on the calling thread, with the bytes done and the total. An exception
  // that it throws ends the loading and reaches the caller; what was loaded is released.
  std::function<void(std::int64_t done, std::int64_t total)> progress{};
};

struct ForwardArgs {
  const CacheStep* step = nullptr;  // of a KvCache or a CacheBatch
  Tensor logits{};                  // f32 [step->logits, vocab]; optional
  Tensor drawn{};  // tokens that ids of the step may refer to (EmbeddingArgs::drawn)
  // Only this many of the largest logits of each row will be read, lower ids first among equals; 0:
  // all. A model that is split over processes may then send only these, and set the others to -inf.
  std::int64_t largest_logits = 0;
  const ContextPass* context = nullptr;  // set by a model whose cache is spread over processes
  // Called with 0 after the embedding, i after layer i, and last (level = layers) after the final
  // norm in place of the last layer's own output, as transformers counts hidden states.
  // hidden: [tokens, hidden] of the model's dtype, in the order of the step's rows. An exception
  // that it throws reaches the caller and leaves the step incomplete: clear() the cache then.
  std::function<void(std::int64_t level, const Tensor& hidden)> observe{};
};

// The size of a pool of pages, for Model::make_pool().
struct PoolRequest {
  CacheBatchLimits limits{};    // of the steps over it
  std::int64_t logit_rows = 0;  // the most logits of a step; 0: one for each sequence
  std::int64_t pages = 0;       // 0: room for all sequences at their longest, or what fits
  std::int64_t page_size = 64;
  bool prefix_cache = true;
  // Of keys and values. Default: Model::cache_dtype(). f8e4m3 and i8 suit every model; f16 and bf16
  // also suit an f32 model on the CPU.
  std::optional<DType> dtype{};
  // With pages = 0: the largest share of the memory that weights and workspace leave free. 0: 0.9
  // on a GPU, 0.5 on the CPU.
  double memory_share = 0;
};

// A linear layer, as `tessera info` lists it and a precision plan names it.
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
  // The linear layers, including the head, in the order of use.
  const std::vector<LayerInfo>& linear_layers() const { return linear_layers_; }
  // Memory of all weights, including the embedding.
  std::int64_t weight_bytes() const { return weight_bytes_; }
  // What the checkpoint asks for and Tessera does not do, one sentence each ("activation
  // quantisation ... is not applied").
  const std::vector<std::string>& notes() const { return notes_; }
  // Throws Error (file) if someone has written to a file that the weights are mapped from. A
  // program that runs for long may call it between requests. load_model() calls it at its end, and
  // generate() before it reports logits from which no token can be drawn.
  virtual void check_files() const {}
  // The most scratch memory that a step over such a cache needs, for any length of the step and of
  // the stream: for the pass, and the logits of up to `logit_rows` tokens. Runs no kernel. 0:
  // unknown; the Context's workspace then grows on demand.
  virtual std::int64_t workspace_bytes(Context& ctx, const KvCacheOptions& cache,
                                       std::int64_t logit_rows) const;
  // The same for any step over a pool of such pages within these limits.
  virtual std::int64_t workspace_bytes(Context& ctx, const PagePoolOptions& pool,
                                       const CacheBatchLimits& limits,
                                       std::int64_t logit_rows) const;
  // Grows the Context's workspace to that size, so that no later step allocates.
  void reserve_workspace(Context& ctx, const KvCacheOptions& cache, std::int64_t logit_rows) const;

  // Whether forward() with logits runs all layers of this step in one call
  // (tessera/decode_layers.h), by the plan of that call. Runs no kernel.
  virtual bool fuses_layers(Context& ctx, const CacheStep& step) const;
  // Whether that call also reads the embedding, instead of what embedding() gives. It always has
  // the final norm.
  virtual bool fuses_embedding() const;

  // Refuses a policy that keeps tokens which the model's layers would not see.
  void check_policy(const CachePolicy& policy) const;
  // The default type of stored keys and values: the model's dtype. On the CPU, f16 for an f32 model
  // whose layers round their input to 8 bits (packed weights, Activations::int8): that loses far
  // more than f16 does, and reading keys and values limits the speed of many streams.
  DType cache_dtype(const Context& ctx) const;
  // Watches a pool that make_cache() or make_pool() is about to make; null if no watcher is needed.
  virtual std::shared_ptr<PoolWatcher> watch_pool() const { return nullptr; }
  // A cache that fits the model, with this policy and these sizes. Reserves the workspace of its
  // steps. If the device has no room for both, throws Error (out_of_memory) before anything is
  // allocated; the message has what each needs, what is free, and the largest cache that would fit.
  // `dtype` is the type of keys and values, as in PoolRequest.
  KvCache make_cache(Context& ctx, const CachePolicy& policy, std::int64_t max_tokens,
                     std::int64_t max_step = 256, std::int64_t logit_rows = 1,
                     std::optional<DType> dtype = std::nullopt) const;
  // A pool that fits the model. Reserves the workspace of the steps over it. If the device has no
  // room for one sequence at its longest, throws Error (out_of_memory) as make_cache() does.
  std::unique_ptr<PagePool> make_pool(Context& ctx, const PoolRequest& request) const;

 protected:
  ModelConfig config_;
  DType dtype_ = DType::f32;
  std::vector<LayerInfo> linear_layers_;
  std::int64_t weight_bytes_ = 0;
  std::vector<std::string> notes_;
};

// Reads a Hugging Face checkpoint: config.json, and model.safetensors or its shards. Weights stay
// as they are in the file (memory-mapped, packed formats packed) or are copied into the layout that
// the device's kernels use. If the device has no room for the weights, this throws before any is
// loaded. If a file of weights is written to during loading, this throws at the end.
std::unique_ptr<Model> load_model(Context& ctx, const std::filesystem::path& directory,
                                  const LoadOptions& options = {});

}  // namespace tessera
