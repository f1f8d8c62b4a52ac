// test_gpu: every test that runs on a GPU, from all the folders, in one program that can be carried
// to a machine with a GPU. Without a filter it runs those alone; the data lies beside it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

int main(int argc, char** argv) {
  // First: InitGoogleTest makes one case of each golden that it finds.
  const auto data = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "data";
  if (std::filesystem::exists(data)) setenv("TESSERA_TEST_DATA", data.c_str(), /*overwrite=*/0);
  // Unless the environment (GTEST_FILTER) has set one; the command line comes last and wins.
  if (testing::GTEST_FLAG(filter) == "*") testing::GTEST_FLAG(filter) = "*/cuda*";
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
