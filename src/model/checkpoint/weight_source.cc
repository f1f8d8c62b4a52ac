#include "model/checkpoint/weight_source.h"

#include <utility>

#include "tessera/quant.h"

namespace tessera::model {

Tensor WeightSource::constants(const std::vector<float>& values) {
  const auto n = static_cast<std::int64_t>(values.size());
  Buffer buffer(DType::f32, {n}, ctx_.device());
  const Tensor tensor = buffer.tensor(DType::f32, {n});
  copy_bytes(ctx_, tensor.data, tensor.device, values.data(), Device::cpu(), tensor.bytes());
  buffers_.push_back(std::move(buffer));
  return tensor;
}

Weight WeightSource::add_layer(const std::string& name, const Weight& weight) {
  Weight loaded = weight;
  loaded.constant = true;  // finish() waits for the device
  layers_.push_back({name, loaded});
  return loaded;
}

Weight WeightSource::prepared(const std::string& layer, const PackedWeight& weight) {
  PackedWeight result = naming(layer, [&] { return prepare(ctx_, weight.weight); });
  if (weight.storage.data()) ctx_.synchronize();  // before what quantize() made goes
  bytes_ += result.weight.bytes();
  buffers_.push_back(std::move(result.storage));
  return result.weight;
}

}  // namespace tessera::model
