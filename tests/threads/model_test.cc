// One model used by several Contexts at once, each on a thread of its own: what tessera/model.h
// promises. ./test.sh runs this program under the thread sanitizer, which sees every race there is,
// not only those that change a token.
#include "tessera/model.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/devices.h"
#include "support/files.h"
#include "tessera/generate.h"

namespace tessera::test {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr int kUsers = 3;

class ModelThreads : public DeviceTest {
 protected:
  // A prompt, a seed and a policy for each user, so that all paths through the cache run at once.
  Ids generate_as(int user, const Model& model) const {
    const std::unique_ptr<Context> ctx = context(2);
    const CachePolicy policies[kUsers] = {CachePolicy::full(), CachePolicy::last(8),
                                          CachePolicy::sinks(2, 6)};
    KvCache cache = model.make_cache(*ctx, policies[user], 64);
    const Ids prompt{1, 5 + user, 9, 2 + user, 7};
    const GenerateOptions options{.max_tokens = 24,
                                  .ignore_eos = true,
                                  .sampling = {.seed = static_cast<std::uint64_t>(user)}};
    return generate(*ctx, model, cache, nullptr, prompt, options).ids;
  }
};

TEST_P(ModelThreads, SeveralContextsUseOneModelAtOnce) {
  for (const char* golden : {"llama-gqa", "neox-parallel", "llama-nvfp4"}) {
    SCOPED_TRACE(golden);
    const std::unique_ptr<Model> model =
        load_model(ctx(), data_path(std::string("goldens/") + golden));
    std::vector<Ids> together(kUsers);
    std::vector<std::thread> users;
    for (int user = 0; user < kUsers; ++user) {
      users.emplace_back([&, user] { together[user] = generate_as(user, *model); });
    }
    for (std::thread& user : users) user.join();
    for (int user = 0; user < kUsers; ++user) {
      EXPECT_EQ(together[user].size(), 24u);
      EXPECT_EQ(together[user], generate_as(user, *model)) << "user " << user;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, ModelThreads, testing::ValuesIn(test_devices()), device_name);

}  // namespace
}  // namespace tessera::test
