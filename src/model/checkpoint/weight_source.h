// Gives the layers of a model their weights, in the form that the device needs. An architecture
// asks for them by the names that transformers uses. There are two sources of the numbers: a
// checkpoint (checkpoint_weights.h), and a random generator (random_weights.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/memory_ledger.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/weight_slice.h"
#include "tessera/buffer.h"
#include "tessera/context.h"
#include "tessera/error.h"
#include "tessera/model.h"

namespace tessera::model {

// The memory that the weights of a model point into.
struct WeightStorage {
  std::shared_ptr<const Checkpoint> checkpoint;  // if they lie in its files
  std::vector<Buffer> buffers;
  MappedBytes mapped{};  // what the weights use of mapped files

  void check_files() const {
    if (checkpoint) checkpoint->check_unchanged();
  }
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  WeightSource(const WeightSource&) = delete;
  WeightSource& operator=(const WeightSource&) = delete;

  // Whether there is any tensor of this module: "lm_head.weight", "lm_head.weight_packed", ...
  virtual bool has_module(std::string_view module) const = 0;

  // Whether a head that the config ties to a table may share it: not if the source has both and
  // they differ, which is noted.
  virtual bool shares_table(const std::string& table, const std::string& head) = 0;

  // The processes that hold the model together; null: this one alone. With several, an architecture
  // asks for its slices; sizes are still those of the whole tensors.
  Communicator* ranks() const { return ranks_; }
  void set_ranks(Communicator* ranks) { ranks_ = ranks; }
  // The processes over which the cache is spread; null: it is not.
  Communicator* context_ranks() const { return context_ranks_; }
  void set_context_ranks(Communicator* ranks) { context_ranks_ = ranks; }

  // LoadOptions::fuse_layers.
  bool fuses_layers() const { return fuses_layers_; }
  void set_fuses_layers(bool fuses) { fuses_layers_ = fuses; }

  // A slice of MODULE.weight [out, in], dense or packed.
  virtual Weight linear(const std::string& module, std::int64_t out, std::int64_t in,
                        const WeightSlice& slice) = 0;
  // A part of [n], of any float dtype on the CPU, of the model's on a GPU.
  virtual Tensor vector(const std::string& name, std::int64_t n, const Range& part) = 0;
  Tensor vector(const std::string& name, std::int64_t n) { return vector(name, n, {}); }
  // Rows of MODULE.weight [rows, n], dense or packed: an embedding reads single rows of it. `head`
  // is another name that keep_dense may use: that of the head that shares the table, or MODULE
  // again.
  virtual Weight table(const std::string& module, const std::string& head, std::int64_t rows,
                       std::int64_t n, const Range& part) = 0;
  // The head that shares a table: the same memory, unless the table is dense and only the head is
  // packed. The layer goes by the table's name, as in the file; keep_dense may also call it `head`,
  // the name it would have if it were not shared.
  virtual Weight tied_head(const std::string& module, const std::string& head, const Weight& table,
                           const Range& part) = 0;
  // f32 numbers that the loader has made, on the model's device.
  Tensor constants(const std::vector<float>& values);

  // Call it when all weights have been read.
  virtual void finish() {}

  std::vector<LayerInfo> take_layers() { return std::move(layers_); }
  std::vector<std::string> take_notes() { return std::move(notes_); }
  virtual WeightStorage take_storage() { return {nullptr, std::move(buffers_)}; }
  std::int64_t bytes() const { return bytes_; }

 protected:
  explicit WeightSource(Context& ctx) : ctx_(ctx) {}

  // Lists a linear layer.
  Weight add_layer(const std::string& name, const Weight& weight);
  // Lays a weight in the published layout out for the device's kernels. A refusal begins with the
  // layer's name.
  Weight prepared(const std::string& layer, const PackedWeight& weight);

  Context& ctx_;
  Communicator *ranks_ = nullptr, *context_ranks_ = nullptr;
  bool fuses_layers_ = true;
  std::vector<Buffer> buffers_;
  std::vector<LayerInfo> layers_;
  std::vector<std::string> notes_;
  std::int64_t bytes_ = 0;
};

// Runs a step and puts the layer's name before what it refuses.
template <typename Step>
auto naming(const std::string& layer, Step&& step) {
  try {
    return step();
  } catch (const Error& error) {
    throw Error(error.code(), layer + ": " + error.what());
  }
}

}  // namespace tessera::model
