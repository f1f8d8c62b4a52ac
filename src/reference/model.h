// A whole model in float64, straight from the formulas, on the decoded weights of a checkpoint:
// every architecture of the registry, by its config and the names of its modules. It is slow. It
// shares only the reading of files with the library, and none of the computation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/architectures/registry.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/packed_layouts.h"
#include "reference/array.h"
#include "tessera/context.h"
#include "tessera/model.h"

namespace tessera::reference {

class ReferenceModel {
 public:
  // Packs the weights that load_model() would pack with these options. `ctx` must be on the CPU;
  // its threads are used.
  ReferenceModel(Context& ctx, const std::filesystem::path& directory, LoadOptions options = {});

  struct Output {
    std::vector<Array> levels;  // [tokens, hidden]: as ForwardArgs::observe counts them
    Array logits;               // [tokens, vocab]
  };
  // Runs a text from its first token on.
  Output forward(std::span<const std::int32_t> ids) const;

  const ModelConfig& config() const { return config_; }

  // x [tokens, in] W^T + bias of a module; [tokens, out].
  Array project(const Array& x, const std::string& module, std::int64_t out, bool bias) const;

 private:
  Array vector(const std::string& name) const;
  Array norm(const Array& x, const std::string& module) const;
  Array attention(const Array& x, std::int64_t layer) const;
  Array mlp(const Array& x, std::int64_t layer) const;
  Array embed(std::span<const std::int32_t> ids) const;
  bool stored(const std::string& module) const;
  std::string head_module() const;
  std::string table_module() const;
  PackedWeight decodable(const std::string& module, std::int64_t out, std::int64_t in) const;

  Context& ctx_;
  ModelConfig config_;
  LoadOptions options_;
  std::shared_ptr<const model::Checkpoint> checkpoint_;
  model::PackedLayouts layouts_;
  const model::Architecture& architecture_;
  const model::ModuleNames& names_;
};

// theta^(-2i / dims), scaled as the config says, in float64.
Array rope_frequencies(const RopeConfig& rope);

}  // namespace tessera::reference
