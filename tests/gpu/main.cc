// test_gpu: every test that runs on a GPU, from all folders, in one program that can be copied to a
// machine with a GPU. Without a filter it runs only those tests. Its data is beside it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

int main(int argc, char** argv) {
  // This comes first, because InitGoogleTest makes one case of each golden that it finds.
  const auto data = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "data";
  if (std::filesystem::exists(data)) setenv("TESSERA_TEST_DATA", data.c_str(), /*overwrite=*/0);
  // The default filter, unless GTEST_FILTER in the environment sets one. The command line comes
  // last and wins.
  if (testing::GTEST_FLAG(filter) == "*") testing::GTEST_FLAG(filter) = "*/cuda*";
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
