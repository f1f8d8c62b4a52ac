// One Model and one Tokenizer used by four Contexts at once, each on a thread of its own: what
// tessera/model.h, tokenizer.h and context.h promise. ./test.sh runs this program under the thread
// sanitizer, which sees every race there is, not only those that change a token.
#include "tessera/model.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/devices.h"
#include "support/files.h"
#include "support/tiny_tokenizer.h"
#include "tessera/buffer.h"
#include "tessera/error.h"
#include "tessera/generate.h"
#include "tessera/softmax.h"
#include "tessera/tokenizer.h"

namespace tessera::test {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr int kUsers = 4;

class ModelThreads : public DeviceTest {
 protected:
  // A prompt, a seed and a policy for each user, so that all paths through the cache run at once.
  static GenerateResult generate_as(int user, Context& ctx, const Model& model,
                                    const Tokenizer& tokenizer) {
    const CachePolicy policies[kUsers] = {CachePolicy::full(), CachePolicy::last(8),
                                          CachePolicy::sinks(2, 6), CachePolicy::full()};
    KvCache cache = model.make_cache(ctx, policies[user], 64);
    const Ids prompt = tokenizer.encode("Once upon a time, " + std::to_string(user));
    EXPECT_EQ(tokenizer.decode(prompt), "Once upon a time, " + std::to_string(user));
    const GenerateOptions options{.max_tokens = 24,
                                  .ignore_eos = true,
                                  .sampling = {.seed = static_cast<std::uint64_t>(user)}};
    return generate(ctx, model, cache, &tokenizer, prompt, options);
  }

  // All users at once, each on its own thread and Context.
  std::vector<GenerateResult> generate_together(const Model& model, const Tokenizer& tokenizer,
                                                const Context* share_threads_with) const {
    std::vector<GenerateResult> results(kUsers);
    std::vector<std::thread> users;
    for (int user = 0; user < kUsers; ++user) {
      users.emplace_back([&, user] {
        Context ctx({.device = GetParam(),
                     .threads = share_threads_with ? 0 : 2,
                     .share_threads_with = share_threads_with});
        results[static_cast<std::size_t>(user)] = generate_as(user, ctx, model, tokenizer);
      });
    }
    for (std::thread& user : users) user.join();
    return results;
  }
};

TEST_P(ModelThreads, FourContextsUseOneModelAndOneTokenizerAtOnce) {
  const Tokenizer tokenizer =
      Tokenizer::from_json(tiny_tokenizer_json(TinyVocabulary::bytes), "tokenizer.json");
  const std::unique_ptr<Context> threads = context(3);
  for (const char* golden : {"llama-gqa", "neox-parallel", "llama-nvfp4"}) {
    const std::unique_ptr<Model> model =
        load_model(ctx(), data_path(std::string("goldens/") + golden));
    for (const Context* shared : {static_cast<Context*>(nullptr), threads.get()}) {
      SCOPED_TRACE(std::string(golden) + (shared ? ", shared threads" : ""));
      const std::vector<GenerateResult> together = generate_together(*model, tokenizer, shared);
      for (int user = 0; user < kUsers; ++user) {
        const std::unique_ptr<Context> alone = context(2);
        const GenerateResult expected = generate_as(user, *alone, *model, tokenizer);
        EXPECT_EQ(together[static_cast<std::size_t>(user)].ids, expected.ids) << "user " << user;
        EXPECT_EQ(together[static_cast<std::size_t>(user)].text, expected.text) << "user " << user;
        EXPECT_EQ(expected.ids.size(), 24u);
      }
    }
  }
}

// A mistake that is refused, not a race: whatever is not refused has the right result.
TEST_P(ModelThreads, TwoThreadsOnOneContextAreRefused) {
  constexpr std::int64_t kRows = 64, kColumns = 256;
  const std::vector<float> ones(kRows * kColumns, 1.f);
  Buffer x(DType::f32, {kRows, kColumns}, GetParam());
  copy_bytes(ctx(), x.data(), GetParam(), ones.data(), Device::cpu(), x.bytes());
  ctx().synchronize();
  std::atomic<int> refused = 0, done = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&] {
      Buffer out(DType::f32, {kRows, kColumns}, GetParam());
      // Until both outcomes were seen; a machine with one processor may take a while.
      for (int i = 0; i < 200000 && (i < 50 || refused == 0 || done == 0); ++i) {
        try {
          softmax(ctx(), {.x = x.tensor(), .out = out.tensor()});
          ++done;
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
          ++refused;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(done, 0);
  EXPECT_GT(refused, 0);
  EXPECT_NO_THROW(softmax(ctx(), {.x = x.tensor(), .out = x.tensor()}));
  ctx().synchronize();
}

INSTANTIATE_TEST_SUITE_P(Devices, ModelThreads, testing::ValuesIn(test_devices()), device_name);

}  // namespace
}  // namespace tessera::test
