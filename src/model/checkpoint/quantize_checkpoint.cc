#include "model/checkpoint/quantize_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/as_error.h"
#include "core/checked.h"
#include "core/fail.h"
#include "core/workspace.h"
#include "cpu/elementwise/for_each_row.h"
#include "model/architectures/config.h"
#include "model/architectures/registry.h"
#include "model/checkpoint/output_folder.h"
#include "model/checkpoint/packed_layouts.h"
#include "model/checkpoint/packed_writer.h"
#include "model/checkpoint/quote.h"
#include "model/checkpoint/safetensors_dtype.h"
#include "quant/codec.h"

namespace tessera::model {
namespace {

constexpr std::string_view kWeight = ".weight";

bool is_matrix(const StoredTensor& tensor) {
  const bool dense = tensor.dtype == "F32" || tensor.dtype == "F16" || tensor.dtype == "BF16";
  return dense && tensor.shape.size() == 2 && !tensor.data.empty() &&
         tensor.name.ends_with(kWeight);
}

// Where the checkpoint's architecture has its embedding and its head.
struct EndModules {
  std::string embedding;                    // a tied matrix may be stored under the head's name
  std::span<const std::string_view> heads;  // all names that the head can have
  bool tied;
};

EndModules end_modules(const Checkpoint& checkpoint) {
  const ModelConfig config =
      model_config_of(checkpoint.config(), (checkpoint.directory() / "config.json").string());
  const ModuleNames& names = find_architecture(config).modules;
  const auto is_stored = [&](std::string_view module) {
    return checkpoint.find(std::string(module).append(kWeight)) != nullptr;
  };
  std::string_view embedding = names.table;
  if (config.tied_head && !is_stored(names.table)) {
    const auto head = std::find_if(names.heads.begin(), names.heads.end(), is_stored);
    if (head != names.heads.end()) embedding = *head;
  }
  return {.embedding = std::string(embedding), .heads = names.heads, .tied = config.tied_head};
}

bool is_decimal_digit(char c) { return c >= '0' && c <= '9'; }

// "layers.9" before "layers.10": runs of digits compare as numbers.
bool natural_less(std::string_view a, std::string_view b) {
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (!is_decimal_digit(a[i]) || !is_decimal_digit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
      continue;
    }
    const auto run = [](std::string_view text, std::size_t& at) {
      const std::size_t begin = at;
      while (at < text.size() && is_decimal_digit(text[at])) ++at;
      return text.substr(begin, at - begin);
    };
    const std::string_view x = run(a, i), y = run(b, j);
    if (x.size() != y.size()) return x.size() < y.size();
    if (x != y) return x < y;
  }
  return a.size() - i < b.size() - j;
}

std::int64_t size_of_all(const std::vector<TensorToWrite>& tensors) {
  std::int64_t bytes = 0;
  for (const TensorToWrite& tensor : tensors) {
    const int bits = find_safetensors_dtype(tensor.dtype)->bits;
    bytes = checked_add(bytes, checked_mul(checked_product(tensor.shape), bits) / 8);
  }
  return bytes;
}

// |W' - W| / |W|, summed row by row in a fixed order: the same number on any number of threads.
double relative_error(Context& ctx, const Tensor& dense, const Weight& packed) {
  const std::int64_t rows = packed.out_features, cols = packed.in_features;
  const Weight exact = Weight::dense(dense);
  Workspace::Frame frame(ctx.workspace());
  auto* scratch = frame.take<float>(checked_mul(checked_mul(ctx.threads(), 2), cols));
  auto* sums = frame.take<double>(checked_mul(rows, 2));  // of each row: squared error, square
  cpu::for_each_row(ctx.pool(), rows, cols, [&](std::int64_t row, int worker) {
    float* is = scratch + 2 * worker * cols;
    float* was = is + cols;
    quant::decode_row(packed, row, 0, cols, is);
    quant::decode_row(exact, row, 0, cols, was);
    double error = 0, square = 0;
    for (std::int64_t k = 0; k < cols; ++k) {
      const double before = was[k], off = is[k] - before;
      error += off * off;
      square += before * before;
    }
    sums[2 * row] = error;
    sums[2 * row + 1] = square;
  });
  double error = 0, square = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    error += sums[2 * row];
    square += sums[2 * row + 1];
  }
  return square > 0 ? std::sqrt(error / square) : 0;
}

// One run of quantize_checkpoint().
class Job {
 public:
  Job(Context& ctx, const Checkpoint& checkpoint, const QuantizeCheckpointArgs& args)
      : ctx_(ctx), checkpoint_(checkpoint), args_(args) {
    const EndModules ends = end_modules(checkpoint);
    const auto is_head = [&](std::string_view module) {
      return std::find(ends.heads.begin(), ends.heads.end(), module) != ends.heads.end();
    };
    for (const PackableLayer& layer : packable_layers(checkpoint)) {
      const bool packed =
          (!layer.embedding || args.embedding) && args.plan.format_of(layer.name) != Format::dense;
      if (packed) packed_.emplace(layer.name + std::string(kWeight), result_.layers.size());
      result_.layers.push_back(
          {.name = layer.name,
           .packed = packed,
           .dense_bytes = layer.dense_bytes,
           .stored_bytes = packed ? stored_bytes(layer, args.options) : layer.dense_bytes});
      if (!packed && (!layer.embedding || is_head(layer.name))) ignore_.push_back(layer.name);
      packs_embedding_ = packs_embedding_ || (packed && layer.embedding);
    }
    if (ends.tied) ignore_tied_head(ends);
    for (const StoredTensor& tensor : checkpoint.tensors()) {
      result_.bytes_before += static_cast<std::int64_t>(tensor.data.size());
      plan_tensor(tensor);
    }
    result_.bytes_after = size_of_all(planned_);
    if (packed_.empty()) {
      fail(ErrorCode::invalid_argument, "no layer is left to be packed: all {} stay dense",
           result_.layers.size());
    }
  }

  QuantizedCheckpoint run() {
    OutputFolder out(args_.out, checkpoint_.directory(), args_.force, result_.bytes_after);
    SafetensorsWriter writer(out.new_files() / "model.safetensors", planned_, {{"format", "pt"}});
    for (const StoredTensor& tensor : checkpoint_.tensors()) {
      const auto layer = packed_.find(tensor.name);
      if (layer == packed_.end()) {
        writer.write(tensor.name, tensor.data);
      } else {
        pack(tensor, result_.layers[layer->second], writer);
      }
      done_ += static_cast<std::int64_t>(tensor.data.size());
      if (args_.progress) args_.progress(done_, result_.bytes_before);
    }
    writer.commit();
    Json config = checkpoint_.config();
    config["quantization_config"] =
        packed_config({.options = args_.options, .embedding = packs_embedding_, .ignore = ignore_});
    out.write("config.json", config.dump(2) + "\n");
    out.copy_others();
    checkpoint_.check_unchanged();
    out.commit();
    return std::move(result_);
  }

 private:
  // A head that is tied to the embedding has no tensor of its own, but other programs see a Linear
  // layer in it.
  void ignore_tied_head(const EndModules& ends) {
    for (const std::string_view head : ends.heads) {
      if (!checkpoint_.find(std::string(head).append(kWeight))) ignore_.emplace_back(head);
    }
  }

  void plan_tensor(const StoredTensor& tensor) {
    if (packed_.contains(tensor.name)) {
      for (TensorToWrite& part :
           packed_tensors(module_of(tensor), args_.options, tensor.shape[0], tensor.shape[1])) {
        planned_.push_back(std::move(part));
      }
    } else {
      planned_.push_back({tensor.name, tensor.dtype, tensor.shape, {}});
    }
  }

  static std::string module_of(const StoredTensor& tensor) {
    return tensor.name.substr(0, tensor.name.size() - kWeight.size());
  }

  void pack(const StoredTensor& tensor, QuantizedLayer& layer, SafetensorsWriter& writer) {
    const Tensor dense = tensor.tensor();
    try {
      const PackedWeight packed = quantize(ctx_, dense, args_.options);
      layer.relative_error = relative_error(ctx_, dense, packed.weight);
      for (const PackedTensors parts = pack_tensors(layer.name, packed.weight);
           const TensorToWrite& part : parts.tensors) {
        writer.write(part.name, part.data);
      }
    } catch (const Error& error) {
      if (error.code() == ErrorCode::file) throw;
      throw Error(error.code(), printable(layer.name) + ": " + error.what());
    }
  }

  Context& ctx_;
  const Checkpoint& checkpoint_;
  const QuantizeCheckpointArgs& args_;
  QuantizedCheckpoint result_;
  std::unordered_map<std::string, std::size_t> packed_;  // tensor -> index of its layer
  std::vector<std::string> ignore_;
  std::vector<TensorToWrite> planned_;
  bool packs_embedding_ = false;
  std::int64_t done_ = 0;
};

}  // namespace

std::vector<PackableLayer> packable_layers(const Checkpoint& checkpoint) {
  if (PackedLayouts(checkpoint).any_packed()) {
    fail(ErrorCode::invalid_argument,
         "{} is packed already; give the dense checkpoint it was made from",
         checkpoint.directory().string());
  }
  const std::string embedding = end_modules(checkpoint).embedding;
  std::vector<PackableLayer> layers;
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    if (!is_matrix(tensor)) continue;
    const std::string module = tensor.name.substr(0, tensor.name.size() - kWeight.size());
    layers.push_back({module, tensor.shape[0], tensor.shape[1],
                      static_cast<std::int64_t>(tensor.data.size()), module == embedding});
  }
  std::sort(layers.begin(), layers.end(), [](const PackableLayer& a, const PackableLayer& b) {
    return natural_less(a.name, b.name);
  });
  return layers;
}

QuantizeOptions with_fitting_group(QuantizeOptions options,
                                   const std::vector<PackableLayer>& layers) {
  if (options.format != Format::int4 || options.group != -1) return options;
  for (const std::int64_t group : {128, 64, 32}) {
    options.group = group;
    if (std::all_of(layers.begin(), layers.end(),
                    [&](const PackableLayer& layer) { return layer.in_features % group == 0; })) {
      return options;
    }
  }
  options.group = -1;  // nothing fits: the format's default
  return options;
}

std::int64_t stored_bytes(const PackableLayer& layer, const QuantizeOptions& options) {
  return size_of_all(packed_tensors(layer.name, options, layer.out_features, layer.in_features));
}

QuantizedCheckpoint quantize_checkpoint(Context& ctx, const Checkpoint& checkpoint,
                                        const QuantizeCheckpointArgs& args) {
  return as_error(fmt::format("packing {}", checkpoint.directory().string()), [&] {
    try {
      return Job(ctx, checkpoint, args).run();
    } catch (const Error&) {
      checkpoint.check_unchanged();  // a changed file is the reason of any other error
      throw;
    }
  });
}

}  // namespace tessera::model
