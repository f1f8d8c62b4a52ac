// Gives the layers of a model their weights, as the checkpoint has them and the device wants them:
//
//   mapped file -- dense ----------------------------------> view (CPU), converted copy (GPU)
//        |           |
//        |           +-- quantize (LoadOptions::pack) ---+
//        |                                               v
//        +------- packed -- PackedLayouts ----------> prepare: the layout of the device's kernels
//
// This is the one place of a model that knows about devices.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "model/checkpoint.h"
#include "model/packed_layouts.h"
#include "tessera/buffer.h"
#include "tessera/context.h"
#include "tessera/model.h"

namespace tessera::model {

// What the weights of a model point into.
struct WeightStorage {
  std::shared_ptr<const Checkpoint> checkpoint;
  std::vector<Buffer> buffers;
};

class WeightSource {
 public:
  // `options` must outlive the source.
  WeightSource(Context& ctx, std::shared_ptr<const Checkpoint> checkpoint, DType dtype,
               const LoadOptions& options);

  // Is there any tensor of this module: "lm_head.weight", "lm_head.weight_packed", ...?
  bool has_module(std::string_view module) const;

  // May a head that the config ties to a table share it? Not where the file has both and they
  // differ, which is noted.
  bool shares_table(const std::string& table, const std::string& head);

  // MODULE.weight [out, in], dense or packed.
  Weight linear(const std::string& module, std::int64_t out, std::int64_t in);
  // [n], of any float dtype on the CPU, of the model's on a GPU.
  Tensor vector(const std::string& name, std::int64_t n);
  // MODULE.weight [rows, n], dense: a table that the file has packed is decoded.
  Tensor table(const std::string& module, std::int64_t rows, std::int64_t n);
  // The head that shares a table: the same memory, unless that is packed or to be packed. The layer
  // goes by the table's name, as in the file; keep_dense may also call it `head`, the name it would
  // have if it were not shared.
  Weight tied_head(const std::string& module, const std::string& head, const Tensor& table);
  // f32 numbers that the loader has made, on the model's device.
  Tensor constants(const std::vector<float>& values);

  // When all is read: refuses a keep_dense pattern that matched no layer, and notes tensors that
  // nobody asked for.
  void finish();

  std::vector<LayerInfo> take_layers() { return std::move(layers_); }
  std::vector<std::string> take_notes() { return std::move(notes_); }
  WeightStorage take_storage();
  std::int64_t bytes() const { return bytes_; }

 private:
  bool is_packed(const std::string& module) const;
  PackedWeight published(const std::string& module, std::int64_t out, std::int64_t in);
  // Memory on a GPU for what the next op reads and nobody needs after it.
  char* stage(std::int64_t bytes);
  // As the file has it: on the CPU a view of mapped memory, on a GPU a staged copy.
  Tensor as_stored(const StoredTensor& stored);
  Tensor dense(const StoredTensor& stored);
  Weight prepared(const std::string& layer, PackedWeight weight);
  bool keeps_dense(std::string_view layer, std::string_view alias);
  Weight add_layer(const std::string& name, const Weight& weight);
  void mark_used(const StoredTensor& tensor);

  Context& ctx_;
  std::shared_ptr<const Checkpoint> checkpoint_;
  PackedLayouts layouts_;
  DType dtype_;
  const LoadOptions& options_;
  std::vector<Buffer> buffers_;
  Buffer staging_;
  std::vector<LayerInfo> layers_;
  std::vector<std::string> notes_;
  std::unordered_set<std::string_view> used_;  // views of the checkpoint's names
  std::vector<bool> pattern_matched_;
  std::int64_t bytes_ = 0, bytes_read_ = 0, bytes_total_ = 0;
};

}  // namespace tessera::model
