// Which GPUs a build for given architectures runs on.
#include "cuda/runtime/architectures.h"

#include <gtest/gtest.h>

#include <string>

namespace tessera::test {
namespace {

using cuda::why_no_kernels;

TEST(Architectures, TheRulesOfNvcc) {
  const struct {
    const char* built;
    int major, minor;
    bool runs;
  } cases[] = {
      {"80-real", 8, 0, true},  // machine code: the same major version, no older minor one
      {"80-real", 8, 6, true},
      {"80-real", 8, 9, true},
      {"80-real", 9, 0, false},
      {"86-real", 8, 0, false},
      {"86-real", 8, 6, true},
      {"86-real", 8, 9, true},
      {"90-real", 9, 0, true},
      {"90-real", 10, 0, false},
      {"90a-real", 9, 0, true},  // only this GPU
      {"90a-real", 8, 9, false},
      {"90a-real", 10, 0, false},
      {"100a-real", 10, 0, true},
      {"100a-real", 10, 3, false},
      {"90a", 9, 0, true},  // ... with PTX too
      {"90a", 10, 0, false},
      {"90a-virtual", 12, 0, false},
      {"100f-real", 10, 3, true},  // a family
      {"100f-real", 10, 0, true},
      {"103f-real", 10, 0, false},
      {"100f", 12, 0, false},
      {"80-virtual", 8, 0, true},  // PTX: this version and everything newer
      {"80-virtual", 8, 6, true},
      {"80-virtual", 12, 1, true},
      {"86-virtual", 8, 0, false},
      {"90-virtual", 8, 9, false},
      {"120", 12, 0, true},  // machine code and PTX
      {"120", 13, 0, true},
      {"120", 10, 3, false},
      {"80-real 90a-real", 8, 6, true},  // any of them
      {"80-real 90a-real", 9, 0, true},
      {"80-real 90a-real", 10, 0, false},
      {"80-real 90a-real", 12, 0, false},
      {"80-real 86-real 89-real 90a-real 100-real 120", 8, 9, true},  // the release
      {"80-real 86-real 89-real 90a-real 100-real 120", 9, 0, true},
      {"80-real 86-real 89-real 90a-real 100-real 120", 10, 3, true},
      {"80-real 86-real 89-real 90a-real 100-real 120", 11, 0, false},
      {"80-real 86-real 89-real 90a-real 100-real 120", 12, 1, true},
      {"80-real 86-real 89-real 90a-real 100-real 120", 14, 0, true},
      {"native", 9, 0, true},  // these words say nothing here; the launch decides
      {"all-major", 12, 0, true},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(why_no_kernels(c.major, c.minor, c.built).empty(), c.runs)
        << c.built << " on " << c.major << "." << c.minor;
  }
}

TEST(Architectures, NothingOlderThanAmpereIsTaken) {
  for (const char* built : {"75", "70-virtual", "native", "80-real"}) {
    EXPECT_EQ(why_no_kernels(7, 5, built),
              "its compute capability 7.5 is older than 8.0, the oldest that Tessera has kernels "
              "for");
  }
}

TEST(Architectures, AMissingOneIsNamedWithTheWayToHaveIt) {
  EXPECT_EQ(why_no_kernels(12, 0, "80-real 90a-real"),
            "this build has kernels for 80-real 90a-real and none for compute capability 12.0: "
            "build with -DTESSERA_CUDA_ARCHITECTURES=120");
}

}  // namespace
}  // namespace tessera::test
