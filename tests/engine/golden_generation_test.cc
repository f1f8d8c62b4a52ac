// Generation with a real, tiny checkpoint gives the greedy tokens that transformers generates, for
// any step size and any number of threads.
#include <gtest/gtest.h>

#include <vector>

#include "model/checkpoint/mapped_file.h"
#include "model/checkpoint/safetensors.h"
#include "support/devices.h"
#include "support/files.h"
#include "tessera/generate.h"

namespace tessera::test {
namespace {

using Ids = std::vector<std::int32_t>;

// The first row of an int64 tensor of the golden file.
Ids first_row(const std::filesystem::path& file, std::string_view name) {
  const model::MappedFile mapped(file);
  const auto header = model::parse_safetensors(mapped.bytes(), file.string());
  for (const model::StoredTensor& stored : header.tensors) {
    if (stored.name != name) continue;
    const Tensor row = stored.tensor().select(0, 0);
    const std::int64_t* ids = row.ptr<const std::int64_t>();
    return Ids(ids, ids + row.numel());
  }
  throw std::runtime_error("no tensor " + std::string(name));
}

TEST(GoldenGeneration, GreedyTokensAreThoseOfTransformers) {
  for (const char* name : {"neox-serial-untied", "qwen3", "llama-rope-llama3"}) {
    const auto folder = data_path("goldens") / name;
    const Ids prompt = first_row(folder / "golden.safetensors", "input_ids");
    const Ids expected = first_row(folder / "golden.safetensors", "generated_ids");
    for (const int threads : {1, 2}) {
      Context ctx({.threads = threads});
      const auto model = load_model(ctx, folder);
      for (const std::int64_t max_step : {1, 5, 256}) {
        KvCache cache = model->make_cache(ctx, CachePolicy::full(), 128, max_step);
        const GenerateResult result =
            generate(ctx, *model, cache, nullptr, prompt,
                     {.max_tokens = static_cast<std::int64_t>(expected.size()),
                      .ignore_eos = true,
                      .sampling = {.greedy = true}});
        EXPECT_EQ(result.ids, expected) << name << ", steps of " << max_step;
      }
    }
  }
}

class DeviceGenerationTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, DeviceGenerationTest, testing::ValuesIn(test_devices()),
                         device_name);

// A GPU draws where the logits are, unless something changes them first. The tokens are the same as
// on the CPU.
TEST_P(DeviceGenerationTest, TokensAreDrawnOnTheDevice) {
  constexpr std::int64_t kTokens = 6;
  const auto folder = data_path("goldens") / "neox-serial-untied";
  const Ids prompt = first_row(folder / "golden.safetensors", "input_ids");
  Context cpu({.threads = 1});
  const auto generated = [&](Context& on, const SamplingOptions& sampling) {
    const auto model = load_model(on, folder, {.dtype = DType::f32});
    KvCache cache = model->make_cache(on, CachePolicy::full(), 64, 64);
    on.trace().clear();
    return generate(on, *model, cache, nullptr, prompt,
                    {.max_tokens = kTokens, .ignore_eos = true, .sampling = sampling})
        .ids;
  };
  struct Case {
    SamplingOptions sampling;
    std::int64_t calls;  // calls of sample() on a GPU
  };
  for (const auto& [sampling, calls] :
       {Case{{.greedy = true}, kTokens}, Case{{.top_k = 5, .top_p = 0.9, .seed = 3}, kTokens},
        Case{{.top_p = 0.9, .seed = 3}, kTokens},
        Case{{.temperature = 0.7, .min_p = 0.05, .seed = 4}, kTokens},
        Case{{.top_p = 0.9, .presence_penalty = 0.5, .seed = 3}, 0}}) {
    EXPECT_EQ(generated(ctx(), sampling), generated(cpu, sampling));
    EXPECT_EQ(ctx().trace().calls("sample"), GetParam().is_cpu() ? 0 : calls);
  }
}

}  // namespace
}  // namespace tessera::test
