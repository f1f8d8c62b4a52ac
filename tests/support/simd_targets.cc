#include "support/simd_targets.h"

#include <hwy/highway.h>
#include <hwy/targets.h>

namespace tessera::test {

std::vector<std::int64_t> simd_targets() {
  std::vector<std::int64_t> targets;
  std::int64_t rest = hwy::SupportedTargets() & HWY_TARGETS;
  while (rest != 0) {
    targets.push_back(rest & -rest);
    rest &= rest - 1;
  }
  return targets;
}

std::string simd_target_name(std::int64_t target) { return hwy::TargetName(target); }

ForceSimdTarget::ForceSimdTarget(std::int64_t target) {
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

ForceSimdTarget::~ForceSimdTarget() {
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace tessera::test
