#include "learn.h"

namespace tessera::learn {

std::span<const Step> steps() {
  // clang-format off
  static constexpr Step kSteps[] = {
      // name, idea, function, causal, stores scores, capability, exactly
      {"1 naive", "every score in memory", run_naive, false, true},
      {"2 tiled", "tiles in shared memory", run_tiled, false, true},
      {"3 online softmax", "one kernel, no scores in memory", run_online_softmax, false, false},
      {"4 causal", "tiles that no query sees are not visited", run_causal, true, false},
      {"5 tensor cores", "products by mma.sync", run_tensor_cores, true, false},
      {"6 swizzle", "no bank conflicts", run_swizzle, true, false},
#if TESSERA_LEARN_SM90
      {"7 warp specialisation", "one warp fetches, four compute", run_warp_specialisation, true, false, 90},
#endif
#if TESSERA_LEARN_SM90A
      {"8 wgmma", "the tensor cores of Hopper", run_wgmma, true, false, 90, true},
#endif
  };
  // clang-format on
  return kSteps;
}

}  // namespace tessera::learn
