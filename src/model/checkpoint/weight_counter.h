// Counts the memory of a model's weights before any is loaded: the constructor of the architecture
// asks for them as it does when it loads them, and each is counted.
#pragma once

#include <cstdint>
#include <string>

#include "model/checkpoint/checkpoint_weights.h"

namespace tessera::model {

class WeightCounter final : public CheckpointWeights {
 public:
  using CheckpointWeights::CheckpointWeights;

  // Shapes without memory. What loading refuses by name is refused here already.
  Weight linear(const std::string& module, std::int64_t out, std::int64_t in,
                const WeightSlice& slice) override;
  Tensor vector(const std::string& name, std::int64_t n, const Range& part) override;
  Weight table(const std::string& module, const std::string& head, std::int64_t rows,
               std::int64_t n, const Range& part) override;
  Weight tied_head(const std::string& module, const std::string& head, const Weight& table,
                   const Range& part) override;

  // Memory that the weights take, without what stays in the mapped file.
  std::int64_t taken() const { return taken_; }
  // The most memory that loading one weight needs besides them.
  std::int64_t loading() const { return staged_ + scratch_; }

 private:
  // The part of a matrix [out, in] that a process holds.
  struct Share {
    std::int64_t out, in;        // of the whole
    std::int64_t rows, columns;  // of the slice

    Share(std::int64_t out_features, std::int64_t in_features, const WeightSlice& slice);
    // The part's share of `bytes` of the whole.
    std::int64_t of(std::int64_t bytes) const;
  };
  void count_copy(const StoredTensor& stored);
  void count_dense(const StoredTensor& stored, const Share& share);
  // For a layer that the file has packed, and for one that is packed while loading.
  void count_stored(const std::string& module, const Share& share);
  void count_packed(const std::string& module, const Share& share);
  // Either of them, or count_dense().
  void count(const std::string& module, bool packs, const Share& share);
  void take(std::int64_t bytes);
  // Of packed_parts().
  std::int64_t stored_bytes(const std::string& module) const;

  std::int64_t taken_ = 0, staged_ = 0, scratch_ = 0;
};

}  // namespace tessera::model
