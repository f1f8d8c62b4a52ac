// What is reported about GPUs that are usable, unusable or missing. The sources are compiled for
// 80-real and 90a-real here (tests/CMakeLists.txt).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cuda/runtime/driver_version.h"
#include "cuda_host/fake_cuda_test.h"
#include "tessera/buffer.h"
#include "tessera/context.h"
#include "tessera/device.h"

namespace tessera::test {
namespace {

using HostDevices = FakeCudaTest;

TEST_F(HostDevices, EveryGpuIsListedAndThoseThatCannotBeUsedSayWhy) {
  fake::set_gpus({{.name = "Hopper", .memory = std::int64_t{141} << 30, .multiprocessors = 132},
                  {.name = "Turing", .major = 7, .minor = 5},
                  {.name = "Ada", .major = 8, .minor = 9},
                  {.name = "Blackwell", .major = 10, .minor = 0}});
  const std::vector<DeviceInfo> all = devices();
  ASSERT_EQ(all.size(), 5u);
  EXPECT_TRUE(all[0].device.is_cpu());
  EXPECT_EQ(all[1].device, Device::cuda(0));
  EXPECT_EQ(all[1].name, "Hopper");
  EXPECT_EQ(all[1].capability, "9.0");
  EXPECT_EQ(all[1].memory_bytes, std::int64_t{141} << 30);
  EXPECT_EQ(all[1].compute_units, 132);
  EXPECT_TRUE(all[1].usable());
  EXPECT_FALSE(all[2].usable());
  EXPECT_NE(all[2].unusable.find("7.5 is older than 8.0"), std::string::npos) << all[2].unusable;
  EXPECT_TRUE(all[3].usable());
  EXPECT_NE(all[4].unusable.find("none for compute capability 10.0"), std::string::npos);
  EXPECT_EQ(cuda_status(), "2 of 4 NVIDIA GPUs can be used; cuda:1 cannot: " + all[2].unusable +
                               "; cuda:3 cannot: " + all[4].unusable);
}

TEST_F(HostDevices, AContextOnAGpuThatCannotBeUsedSaysWhy) {
  fake::set_gpus({{}, {.major = 7, .minor = 5}});
  const Error error = error_of([] { Context ctx({.device = Device::cuda(1)}); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_STREQ(error.what(), ("cuda:1 cannot be used: " + devices().at(2).unusable).c_str());
  Context ctx({.device = Device::cuda(0)});
}

TEST_F(HostDevices, ListingThemStartsNothingOnThem) {
  (void)devices();
  (void)cuda_info();
  EXPECT_EQ(fake::counters().allocations, 0);
  EXPECT_EQ(fake::live(), fake::Live{});
}

TEST_F(HostDevices, TheBuildAndTheDriverTellTheirVersions) {
  fake::set_driver(CUDART_VERSION + 20);
  const CudaInfo info = cuda_info();
  const auto text = [](int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  };
  EXPECT_EQ(info.toolkit, text(CUDART_VERSION));
  EXPECT_EQ(info.driver_cuda, text(CUDART_VERSION + 20));
  EXPECT_EQ(info.architectures, "80-real 90a-real");
  EXPECT_EQ(info.status, "1 of 1 NVIDIA GPUs can be used");
}

TEST_F(HostDevices, WithoutADriverTheCpuWorksAndAGpuIsRefusedInOneSentence) {
  fake::set_driver(0);
  ASSERT_EQ(devices().size(), 1u);
  EXPECT_EQ(cuda_status(), "this machine has no NVIDIA driver");
  EXPECT_EQ(cuda_info().driver_cuda, "");
  Context cpu;
  const Buffer from(16), to(16);
  copy_bytes(cpu, to.data(), Device::cpu(), from.data(), Device::cpu(), 16);
  cpu.synchronize();
  EXPECT_STREQ(error_of([] { Context ctx({.device = Device::cuda()}); }).what(),
               "cuda:0 cannot be used (cudaErrorInsufficientDriver: the words of the driver): this "
               "machine has no NVIDIA driver");
  EXPECT_EQ(error_of([] { (void)device_memory(Device::cuda()); }).code(), ErrorCode::device);
}

TEST_F(HostDevices, ADriverThatIsTooOldIsNamedAsSuch) {
  fake::set_driver(11040);
  EXPECT_EQ(devices().size(), 1u);
  EXPECT_EQ(cuda_status(), "the NVIDIA driver is for CUDA 11.4, but this build needs one for " +
                               std::to_string(CUDART_VERSION / 1000) +
                               ".0 or later: update the driver");
  EXPECT_EQ(cuda_info().driver_cuda, "11.4");
}

TEST_F(HostDevices, AMachineWithoutAGpuSaysSo) {
  fake::set_gpus({});
  EXPECT_EQ(devices().size(), 1u);
  EXPECT_EQ(cuda_status(), "this machine has no NVIDIA GPU, or CUDA_VISIBLE_DEVICES hides it");
}

TEST_F(HostDevices, AGpuThatDoesNotAnswerIsListedWithTheError) {
  fake::fail_once("cudaGetDeviceProperties", cudaErrorIllegalAddress);
  const std::vector<DeviceInfo> all = devices();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].unusable, "cudaErrorIllegalAddress: the words of the driver");
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);  // no later launch is blamed for it
}

TEST(DriverVersion, IsFoundInTheTextOfTheKernelModule) {
  EXPECT_EQ(cuda::driver_version_in("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  "
                                    "Sat Aug 19 01:15:15 UTC 2023\nGCC version:  gcc 12.2.0\n"),
            "535.104.05");
  EXPECT_EQ(cuda::driver_version_in("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  "
                                    "570.124.06  Release Build  (dvs-builder@U16)\n"),
            "570.124.06");
  EXPECT_EQ(cuda::driver_version_in("GCC 12 .5 6.\n1.2.3"), "");
  EXPECT_EQ(cuda::driver_version_in(""), "");
}

}  // namespace
}  // namespace tessera::test
