// Two Contexts of one GPU decode at once with the kernel of all layers, whose blocks wait for each
// other: each gets the whole GPU in turn. If each got a part of it, both would wait for ever.
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "support/devices.h"
#include "support/random_neox.h"
#include "tessera/generate.h"
#include "tessera/trace.h"

namespace tessera::test {
namespace {

using Ids = std::vector<std::int32_t>;

// A kernel that waits for ever cannot be ended: only the process can.
void finish_within(std::chrono::seconds limit, const std::function<void()>& work) {
  std::future<void> done = std::async(std::launch::async, work);
  if (done.wait_for(limit) == std::future_status::timeout) {
    std::fprintf(stderr, "two Contexts have waited for each other for %lld s\n",
                 static_cast<long long>(limit.count()));
    std::_Exit(1);
  }
  done.get();
}

class TwoContextsTest : public DeviceTest {
 protected:
  static constexpr int kUsers = 2;

  NeoxShape shape() const {
    return is_emulated(GetParam())
               ? NeoxShape{}
               : NeoxShape{.hidden = 768, .heads = 12, .inner = 3072, .layers = 6};
  }
  // `start` is reached when everything is loaded.
  Ids tokens_of(int user, std::optional<Format> format, bool graphs,
                const std::function<void()>& start) const {
    Context ctx({.device = GetParam(), .threads = 1, .graphs = graphs});
    const std::unique_ptr<Model> model = random_neox(ctx, format, true, shape());
    KvCache cache = model->make_cache(ctx, CachePolicy::full(), 500, 16);
    ctx.synchronize();
    start();
    const Ids prompt = {3, 1 + user, 4};
    return generate(ctx, *model, cache, nullptr, prompt,
                    {.max_tokens = is_emulated(GetParam()) ? 3 : 400,
                     .ignore_eos = true,
                     .sampling = {.seed = static_cast<std::uint64_t>(user)}})
        .ids;
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, TwoContextsTest, testing::Values(Device::cuda()), device_name);

TEST_P(TwoContextsTest, DecodeAtOnceAsTheyDoAlone) {
  std::vector<std::optional<Format>> formats{std::nullopt};
  if (!is_emulated(GetParam())) formats.emplace_back(Format::nvfp4);  // to pack takes long there
  for (const std::optional<Format> format : formats) {
    for (const bool graphs : {true, false}) {
      SCOPED_TRACE(std::string(format ? "nvfp4" : "dense") + (graphs ? ", graphs" : ""));
      std::array<Ids, kUsers> alone, together;
      for (int user = 0; user < kUsers; ++user) {
        alone[static_cast<std::size_t>(user)] = tokens_of(user, format, graphs, [] {});
      }
      finish_within(std::chrono::seconds(is_emulated(GetParam()) ? 800 : 120), [&] {
        std::barrier all_loaded(kUsers);
        std::vector<std::thread> users;
        for (int user = 0; user < kUsers; ++user) {
          users.emplace_back([&, user] {
            together[static_cast<std::size_t>(user)] =
                tokens_of(user, format, graphs, [&] { all_loaded.arrive_and_wait(); });
          });
        }
        for (std::thread& user : users) user.join();
      });
      EXPECT_EQ(together, alone);
    }
  }
}

// What the test above is about.
TEST_P(TwoContextsTest, TheyTakeTheKernelOfAllLayers) {
  const std::unique_ptr<Model> model = random_neox(ctx(), std::nullopt, true, shape());
  KvCache cache = model->make_cache(ctx(), CachePolicy::full(), 500, 16);
  const Ids prompt = {3, 1, 4};
  generate(ctx(), *model, cache, nullptr, prompt, {.max_tokens = 3, .ignore_eos = true});
  std::int64_t calls = 0;
  for (const TraceEntry& entry : ctx().trace().entries()) {
    if (entry.op == "decode_layers") calls += entry.calls;
  }
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace tessera::test
