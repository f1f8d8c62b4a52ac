// One Engine used by several threads at once, as tessera/engine.h promises: requests, events,
// cancellations and statistics, under the thread sanitizer.
#include "tessera/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "support/devices.h"
#include "support/files.h"
#include "support/tiny_tokenizer.h"

namespace tessera::test {
namespace {

constexpr int kClients = 4, kRequests = 6;

class EngineThreads : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, EngineThreads, testing::ValuesIn(test_devices()), device_name);

Request request_of_client(int client, int i) {
  Request request;
  request.prompt = "Once upon a time, " + std::to_string(client);
  request.options = {.max_tokens = 12,
                     .ignore_eos = true,
                     .sampling = {.seed = static_cast<std::uint64_t>(10 * client + i)}};
  return request;
}

// Each client has requests that it waits for, one that it cancels and one with a callback, and
// reads the statistics meanwhile.
TEST_P(EngineThreads, ClientsShareOneEngine) {
  const Tokenizer tokenizer =
      Tokenizer::from_json(tiny_tokenizer_json(TinyVocabulary::bytes), "tokenizer.json");
  const auto model = load_model(ctx(), data_path("goldens/llama-gqa"));
  std::vector<std::string> texts(kClients * kRequests), expected;
  std::atomic<int> delivered = 0;
  {
    Engine engine(ctx(), *model, &tokenizer,
                  {.context = 64, .max_sequences = 3, .pages = 10, .page_size = 8});
    std::vector<std::thread> clients;
    for (int client = 0; client < kClients; ++client) {
      clients.emplace_back([&, client] {
        Request called = request_of_client(client, kRequests);
        called.on_event = [&](const Event& event) {
          if (event.kind == Event::Kind::token) ++delivered;
        };
        engine.submit(called);
        RequestHandle cancelled = engine.submit(request_of_client(client, kRequests + 1));
        for (int i = 0; i < kRequests; ++i) {
          RequestHandle handle = engine.submit(request_of_client(client, i));
          if (i == 1) cancelled.cancel();
          EXPECT_LE(engine.stats().running, 3);
          texts[static_cast<std::size_t>(client * kRequests + i)] = handle.wait()[0].text;
        }
        cancelled.wait();
      });
    }
    for (std::thread& client : clients) client.join();
    EXPECT_TRUE(engine.drain_until(std::chrono::steady_clock::now() + std::chrono::minutes(1)));
    EXPECT_EQ(engine.stats().failed, 0);
    EXPECT_EQ(engine.stats().finished + engine.stats().cancelled, kClients * (kRequests + 2));
  }
  EXPECT_EQ(delivered, kClients * 12);
  for (int client = 0; client < kClients; ++client) {
    for (int i = 0; i < kRequests; ++i) {
      const Request request = request_of_client(client, i);
      KvCache cache = model->make_cache(ctx(), CachePolicy::full(), 64);
      expected.push_back(generate(ctx(), *model, cache, &tokenizer,
                                  tokenizer.encode(request.prompt), request.options)
                             .text);
    }
  }
  EXPECT_EQ(texts, expected);
}

}  // namespace
}  // namespace tessera::test
