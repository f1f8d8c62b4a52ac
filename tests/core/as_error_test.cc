// What the standard library throws reaches callers as Error; what is theirs stays theirs.
#include "core/as_error.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <new>
#include <string>
#include <vector>

#include "support/refusal.h"

namespace tessera::test {
namespace {

TEST(AsError, PassesResultsThrough) {
  EXPECT_EQ(as_error("counting", [] { return 3; }), 3);
  as_error("nothing", [] {});
}

TEST(AsError, NamesWhatTheMemoryDidNotSufficeFor) {
  const std::string text = "loading X: the host does not have enough memory; free some";
  EXPECT_TRUE(refuses([] { as_error("loading X", [] { throw std::bad_alloc(); }); }, text,
                      ErrorCode::out_of_memory));
  EXPECT_TRUE(refuses(
      [] { as_error("loading X", [] { std::vector<int>().reserve(std::size_t{1} << 62); }); }, text,
      ErrorCode::out_of_memory));
}

TEST(AsError, NamesTheFile) {
  EXPECT_TRUE(
      refuses([] { as_error("loading X", [] { return std::filesystem::file_size("/no/such"); }); },
              "loading X: /no/such: No such file or directory", ErrorCode::file));
}

TEST(AsError, LeavesEverythingElse) {
  EXPECT_TRUE(
      refuses([] { as_error("loading X", [] { throw Error(ErrorCode::overflow, "too large"); }); },
              "too large", ErrorCode::overflow));
  EXPECT_THROW(as_error("loading X", [] { throw 5; }), int);
}

}  // namespace
}  // namespace tessera::test
