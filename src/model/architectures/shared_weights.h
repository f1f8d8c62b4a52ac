// Weights that every architecture reads in the same way.
#pragma once

#include <cstdint>
#include <string>

#include "model/architectures/registry.h"
#include "model/checkpoint/weight_source.h"
#include "tessera/model.h"

namespace tessera::model {

struct Dense {
  Weight weight{};  // [out, in]
  Tensor bias{};    // [out], or none
};
// A slice of a layer [out, in], and the same rows of its bias. Without `adds_bias`, the bias is
// read and dropped: another process adds it.
Dense read_dense(WeightSource& weights, const std::string& module, std::int64_t out,
                 std::int64_t in, bool bias, const WeightSlice& slice, bool adds_bias = true);

// The embedding's table and the head. They are one matrix if the config ties them, unless the file
// has both and they differ.
class TableAndHead {
 public:
  // `vocab`: the rows of both that are read.
  TableAndHead(WeightSource& weights, const ModuleNames& modules, const ModelConfig& config,
               const Range& vocab);

  Weight read_table();                    // [vocab, hidden]; before the layers
  Weight read_head(const Weight& table);  // [vocab, hidden]; after them

 private:
  WeightSource& weights_;
  std::int64_t vocab_, hidden_;
  Range part_;  // of the vocabulary
  std::string table_, head_;
  bool tied_;
};

}  // namespace tessera::model
