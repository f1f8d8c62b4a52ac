#include "model/model_dtype.h"

#include "core/fail.h"

namespace tessera::model {

DType model_dtype(const Context& ctx, const ModelConfig& config, std::optional<DType> asked) {
  const DType dtype = asked.value_or(ctx.device().is_cpu() ? DType::f32 : config.stored_dtype);
  if (is_float(dtype)) return dtype;
  fail(ErrorCode::invalid_argument, "a model computes in f32, f16 or bf16, got {}", name(dtype));
}

}  // namespace tessera::model
