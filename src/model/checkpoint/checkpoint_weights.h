// The weights of a checkpoint, from the form in the file to the form that the device needs:
//
//   mapped file -- dense ----------------------------------> view (CPU), converted copy (GPU)
//        |           |
//        |           +-- quantize (LoadOptions::pack) ---+
//        |                                               v
//        +------- packed -- PackedLayouts ----------> prepare: the layout of the device's kernels
//
// Nothing else of loading a checkpoint knows about devices.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/packed_layouts.h"
#include "model/checkpoint/weight_source.h"
#include "tessera/buffer.h"

namespace tessera::model {

class CheckpointWeights : public WeightSource {
 public:
  // `options` must outlive the source.
  CheckpointWeights(Context& ctx, std::shared_ptr<const Checkpoint> checkpoint, DType dtype,
                    const LoadOptions& options);

  bool has_module(std::string_view module) const override;
  bool shares_table(const std::string& table, const std::string& head) override;
  Weight linear(const std::string& module, std::int64_t out, std::int64_t in,
                const WeightSlice& slice) override;
  Tensor vector(const std::string& name, std::int64_t n, const Range& part) override;
  Weight table(const std::string& module, const std::string& head, std::int64_t rows,
               std::int64_t n, const Range& part) override;
  Weight tied_head(const std::string& module, const std::string& head, const Weight& table,
                   const Range& part) override;
  // Refuses a keep_dense pattern that matched no layer, and notes tensors that were not read.
  void finish() override;
  WeightStorage take_storage() override;

 protected:
  bool is_packed(const std::string& module) const;
  PackedWeight published(const std::string& module, std::int64_t out, std::int64_t in,
                         const WeightSlice& slice);
  // Memory on a GPU for data that the next op reads and nothing needs after it.
  char* stage(std::int64_t bytes);
  // As the file has it: on the CPU a view of mapped memory, on a GPU a staged copy.
  Tensor as_stored(const Tensor& host);
  // A slice of a tensor of the file; for a vector, slice.rows is the part.
  Tensor dense(const StoredTensor& stored, const WeightSlice& slice);
  // A slice of a layer that the file has dense, packed as LoadOptions::pack says. The whole layer
  // is packed first: scales may depend on all of it.
  Weight packed_now(const std::string& module, const StoredTensor& stored,
                    const WeightSlice& slice);
  // Whether to pack a layer that the file has dense. `alias`: another name for it in keep_dense.
  bool packs_layer(std::string_view layer, std::string_view alias);
  // Codes, scales and zero points: all that the file has of a packed layer, except its bias.
  std::vector<const StoredTensor*> packed_parts(const std::string& module) const;
  void mark_used(const StoredTensor& tensor);

  Context host_{ContextOptions{.threads = 1}};  // cuts slices, so that only those are copied
  std::shared_ptr<const Checkpoint> checkpoint_;
  PackedLayouts layouts_;
  DType dtype_;
  const LoadOptions& options_;
  Buffer staging_;
  MappedBytes mapped_;
  std::unordered_set<std::string_view> used_;  // views of the checkpoint's names
  std::vector<bool> pattern_matched_;
  std::int64_t bytes_read_ = 0, bytes_total_ = 0;
};

}  // namespace tessera::model
