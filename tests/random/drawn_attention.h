// A random call of attention: any mask, memory, dtype and option. Its values are those of the
// float64 twin's inputs, so that the twin, the CPU and a GPU can all be given the same call.
#pragma once

#include <optional>

#include "random/draws.h"
#include "reference/attention.h"
#include "reference/kv_append.h"
#include "reference/test_tensor.h"
#include "tessera/attention.h"

namespace tessera::test {

struct DrawnAttention {
  reference::AttentionInputs in{};                // numbers are rounded to their dtypes
  DType dtype = DType::f32, stored = DType::f32;  // of q and out; of k and v
  reference::Scaled k8{}, v8{};  // where k and v have 8 bits: in has codes times scales
  Layout q_layout{}, kv_layout{}, out_layout{};
  bool lse = true;

  // The same call in f32, which is the CPU's most exact one.
  DrawnAttention in_f32() const;
};

enum class AttentionUse : std::uint8_t { inference, training };
// `work` bounds queries x keys x heads x dim.
DrawnAttention draw_attention(Draws& draws, bool on_cpu, std::int64_t work, AttentionUse use);

// The tensors of a call on a device, with poisoned outputs.
struct AttentionOnDevice {
  AttentionOnDevice(Context& ctx, const DrawnAttention& call);
  AttentionOnDevice(const AttentionOnDevice&) = delete;
  bool inputs_untouched() const { return q.untouched() && k.untouched() && v.untouched(); }
  bool surroundings_intact() const {
    return out.surroundings_intact() && lse.surroundings_intact();
  }

  TestTensor q, k, v, out, lse;
  std::optional<TestTensor> q_offsets, k_offsets, table, lengths, holes, inv_freq, k_scales,
      v_scales;
  AttentionArgs args;
};

// By how much a weight exp(score) / sum may be off, relatively: rounding of f32 scores and of
// rotated keys. `rounds` says that weights themselves are rounded to the dtype, as tensor cores
// want them.
double weight_error(const DrawnAttention& call, bool rounds);
// By how much each element of the output may be off. `magnitude`: the output for the values'
// magnitudes, the sum of weight x |value|.
Array out_bound(const DrawnAttention& call, const Array& exact, const Array& magnitude,
                bool rounds);

}  // namespace tessera::test
