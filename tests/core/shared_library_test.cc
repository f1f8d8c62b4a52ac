#include "core/shared_library.h"

#include <gtest/gtest.h>

namespace tessera::test {
namespace {

TEST(SharedLibrary, TheFirstThatOpensIsUsed) {
  SharedLibrary library({"libnone_of_these.so.7", "libm.so.6"});
  double (*cosine)(double) = nullptr;
  library.find(cosine, "cos");
  EXPECT_EQ(library.problem(), "");
  ASSERT_NE(cosine, nullptr);
  EXPECT_EQ(cosine(0.0), 1.0);
}

TEST(SharedLibrary, SaysWhatIsMissing) {
  void (*function)() = nullptr;
  SharedLibrary none({"libnone_of_these.so.7", "libnor_this.so"});
  none.find(function, "anything");
  EXPECT_EQ(function, nullptr);
  EXPECT_EQ(none.problem(),
            "libnone_of_these.so.7 is not where the loader looks (LD_LIBRARY_PATH)");
  SharedLibrary library({"libm.so.6"});
  library.find(function, "no_such_function");
  library.find(function, "nor_this_one");
  EXPECT_EQ(library.problem(), "libm.so.6 has no no_such_function");  // the first
}

}  // namespace
}  // namespace tessera::test
