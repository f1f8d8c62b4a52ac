#include "bench_model.h"

#include <charconv>
#include <optional>
#include <system_error>

#include "model/architectures/config.h"
#include "model/checkpoint/mapped_file.h"
#include "model/checkpoint/random_weights.h"
#include "tessera/quant.h"

namespace tessera::bench {
namespace {

DType parse_dtype(const std::string& text) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    if (text == name(dtype)) return dtype;
  }
  throw Error(ErrorCode::invalid_argument, "--dtype must be f32, f16 or bf16, not " + text);
}

// One entry of --weights.
struct WeightChoice {
  std::optional<DType> dense{};  // "f16": this dtype instead of the model's
  std::optional<QuantizeOptions> pack{};
};

WeightChoice parse_weights(const std::string& text) {
  if (text == "dense") return {};
  if (text == "f32" || text == "f16" || text == "bf16") return {.dense = parse_dtype(text)};
  const std::size_t colon = text.find(':');
  QuantizeOptions pack{.format = parse_format(text.substr(0, colon)),
                       .search = ScaleSearch::from_max};  // the speed is the same
  if (colon != std::string::npos) {
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, pack.group);
    if (error != std::errc() || rest != end) {
      throw Error(ErrorCode::invalid_argument,
                  "--weights " + text + ": a group size must follow the colon, as in int4:32");
    }
  }
  return {.pack = pack};
}

}  // namespace

void add_model_options(CLI::App& app, ModelChoice& choice) {
  CLI::Option_group* source = app.add_option_group("Model");
  source->add_option("--model", choice.model, "Folder of a checkpoint");
  source->add_option(
      "--shape", choice.shape,
      "Instead: random weights, made on the device, in the shape of this config.json "
      "(bench/shapes has some)");
  source->require_option(1);
  app.add_option("--dtype", choice.dtype, "Dtype of activations: f32, f16 or bf16");
  app.add_flag("--fusion,!--no-fusion", choice.fuse_layers,
               "On a GPU: all layers of one token in one kernel");
}

std::unique_ptr<Model> make_model(Context& ctx, const ModelChoice& choice,
                                  const std::string& weights) {
  const WeightChoice wanted = parse_weights(weights);
  const bool on_cpu = ctx.device().is_cpu();
  std::optional<DType> dtype;
  if (!choice.dtype.empty()) dtype = parse_dtype(choice.dtype);
  if (wanted.dense && !on_cpu) dtype = wanted.dense;
  if (choice.model.empty()) {
    const model::MappedFile file(choice.shape);
    ModelConfig config = model::parse_model_config(file.text(), choice.shape);
    config.stored_dtype = wanted.dense.value_or(config.stored_dtype);
    return model::make_random_model(
        ctx, config, {.dtype = dtype, .pack = wanted.pack, .fuse_layers = choice.fuse_layers});
  }
  if (wanted.dense && on_cpu) {
    throw Error(ErrorCode::invalid_argument,
                "--weights " + std::string(name(*wanted.dense)) +
                    ": on the CPU dense weights keep the checkpoint's dtype; use dense");
  }
  return load_model(ctx, choice.model,
                    {.dtype = dtype, .pack = wanted.pack, .fuse_layers = choice.fuse_layers});
}

}  // namespace tessera::bench
