// All layers of a token in one kernel (decode_layers) give the logits that the ops give one by one,
// for every kind of weight that has such a kernel, and for any number of keys.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/architectures/config.h"
#include "model/checkpoint/random_weights.h"
#include "support/devices.h"
#include "tessera/buffer.h"
#include "tessera/kv_cache.h"
#include "tessera/model.h"
#include "tessera/trace.h"

namespace tessera::test {
namespace {

struct Shape {
  std::int64_t hidden, heads, inner, layers;
  bool biases = true;
  model::Json more = model::Json::object();  // keys of config.json; of a Llama, "model_type" too
};

ModelConfig config_of(const Shape& shape) {
  model::Json json = {{"model_type", "gpt_neox"},
                      {"hidden_size", shape.hidden},
                      {"num_hidden_layers", shape.layers},
                      {"num_attention_heads", shape.heads},
                      {"intermediate_size", shape.inner},
                      {"max_position_embeddings", 4096},
                      {"vocab_size", 160}};
  json.update(shape.more);
  const std::string type = json["model_type"];
  json["architectures"] = {type == "gpt_neox"  ? "GPTNeoXForCausalLM"
                           : type == "llama"   ? "LlamaForCausalLM"
                           : type == "mistral" ? "MistralForCausalLM"
                           : type == "qwen2"   ? "Qwen2ForCausalLM"
                                               : "Qwen3ForCausalLM"};
  if (type == "gpt_neox") json["attention_bias"] = shape.biases;
  return model::model_config_of(json, "config.json");
}

// Heads of the Llama family.
model::Json family(const char* type, std::int64_t kv_heads, std::int64_t head_dim) {
  return {{"model_type", type}, {"num_key_value_heads", kv_heads}, {"head_dim", head_dim}};
}
model::Json with(model::Json json, const char* key, const model::Json& value) {
  json[key] = value;
  return json;
}

// A random model, and a stream of tokens through it.
class Stream {
 public:
  Stream(Context& ctx, const Shape& shape, std::optional<Format> format, bool fuses,
         const CachePolicy& policy, std::optional<DType> cache_dtype = std::nullopt)
      : ctx_(ctx),
        model_(model::make_random_model(
            ctx, config_of(shape),
            {.dtype = DType::f16,
             .pack = format ? std::optional(QuantizeOptions{.format = *format}) : std::nullopt,
             .fuse_layers = fuses})),
        cache_(model_->make_cache(ctx, policy, 4000, 64, 1, cache_dtype)),
        logits_(DType::f32, {1, model_->config().vocab}, ctx.device()) {}

  std::vector<float> feed(std::int64_t count) {
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < count; ++i) {
      ids.push_back(static_cast<std::int32_t>((7 * fed_ + 3) % model_->config().vocab));
      ++fed_;
    }
    const CacheStep& step = cache_.step(ctx_, ids, 1);
    plans_to_fuse_ = model_->fuses_layers(ctx_, step);
    model_->forward(ctx_, {.step = &step, .logits = logits_.tensor()});
    std::vector<float> row(static_cast<std::size_t>(logits_.tensor().numel()));
    copy_bytes(ctx_, row.data(), Device::cpu(), logits_.data(), ctx_.device(), logits_.bytes());
    return row;
  }
  // What the model's plan said of the last step.
  bool plans_to_fuse() const { return plans_to_fuse_; }
  void feed_until(std::int64_t seen) {
    while (cache_.seen() < seen)
      feed(cache_.step_size(std::min<std::int64_t>(64, seen - cache_.seen())));
  }

 private:
  Context& ctx_;
  std::unique_ptr<Model> model_;
  KvCache cache_;
  Buffer logits_;
  std::int64_t fed_ = 0;
  bool plans_to_fuse_ = false;
};

// Logits of random models are of the order of 1; f16 keeps three digits, and layers add up.
void expect_close(const std::vector<float>& actual, const std::vector<float>& expected) {
  float largest = 0, error = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    const float off = std::abs(actual[i] - expected[i]);
    error = std::isnan(off) ? INFINITY : std::max(error, off);
  }
  EXPECT_GT(largest, 0.f);
  EXPECT_LT(error, 0.01f * largest);
}

class DecodeLayersTest : public DeviceTest {
 protected:
  std::int64_t calls(const std::string& op) {
    std::int64_t count = 0;
    for (const TraceEntry& call : ctx().trace().entries()) count += call.op == op ? call.calls : 0;
    return count;
  }
  void compare(const Shape& shape, std::optional<Format> format,
               const std::vector<std::int64_t>& contexts,
               const CachePolicy& policy = CachePolicy::full()) {
    Stream fused(ctx(), shape, format, true, policy), plain(ctx(), shape, format, false, policy);
    for (const std::int64_t context : contexts) {
      SCOPED_TRACE(context);
      fused.feed_until(context);
      plain.feed_until(context);
      for (int i = 0; i < 3; ++i) {
        const std::vector<float> expected = plain.feed(1);
        ctx().trace().clear();
        const std::vector<float> actual = fused.feed(1);
        EXPECT_EQ(calls("decode_layers"), 1);
        for (const char* op : {"embedding", "layer_norm", "rms_norm", "append_attention"}) {
          EXPECT_EQ(calls(op), 0) << op;
        }
        EXPECT_TRUE(fused.plans_to_fuse());
        EXPECT_FALSE(plain.plans_to_fuse());
        expect_close(actual, expected);
      }
    }
  }
  bool is_gpu() { return ctx().device().is_cuda(); }
  // An emulated GPU has one block, which must have room for all rows, and is slow.
  bool is_emulated() {
    const std::vector<DeviceInfo> all = devices();
    return std::any_of(all.begin(), all.end(), [&](const DeviceInfo& info) {
      return info.device == ctx().device() && info.name == "Fake GPU";
    });
  }
  std::vector<std::int64_t> contexts(const std::vector<std::int64_t>& all) {
    return is_emulated() ? std::vector<std::int64_t>{1, 33} : all;
  }
};

TEST_P(DecodeLayersTest, FourBitsGiveTheLogitsOfTheOps) {
  if (!is_gpu()) GTEST_SKIP() << "the CPU has no kernel for it";
  compare({.hidden = 256, .heads = 4, .inner = 512, .layers = 3}, Format::nvfp4,
          contexts({1, 2, 63, 64, 127, 300, 1500}));
  if (is_emulated()) return;
  compare({.hidden = 640, .heads = 8, .inner = 2560, .layers = 2}, Format::nvfp4, {5, 200});
  compare({.hidden = 384, .heads = 3, .inner = 1152, .layers = 1, .biases = false}, Format::nvfp4,
          {17});
}

TEST_P(DecodeLayersTest, DenseWeightsGiveTheLogitsOfTheOps) {
  if (!is_gpu()) GTEST_SKIP() << "the CPU has no kernel for it";
  compare({.hidden = 256, .heads = 4, .inner = 512, .layers = 3}, std::nullopt,
          contexts({1, 2, 63, 64, 127, 300, 1500}));
  if (is_emulated()) return;
  compare({.hidden = 768, .heads = 12, .inner = 3072, .layers = 2}, std::nullopt, {5, 200});
}

// Keys leave the cache, and the page table gets holes.
TEST_P(DecodeLayersTest, AWindowThatRolls) {
  if (!is_gpu()) GTEST_SKIP() << "the CPU has no kernel for it";
  compare({.hidden = 256, .heads = 4, .inner = 512, .layers = 2}, Format::nvfp4, {10, 70, 100, 333},
          CachePolicy::last(50));
}

// A small model of the Llama family.
Shape small(const model::Json& more) {
  return {.hidden = 256, .heads = 4, .inner = 512, .layers = 2, .more = more};
}

TEST_P(DecodeLayersTest, LlamaInFourBits) {
  if (!is_gpu()) GTEST_SKIP() << "the CPU has no kernel for it";
  const Format nvfp4 = Format::nvfp4;
  compare(small(family("llama", 2, 64)), nvfp4, contexts({1, 2, 63, 64, 127, 300, 1500}));
  if (is_emulated()) return;
  compare(small(family("llama", 1, 64)), nvfp4, {1, 200, 1000});
  compare(small(family("llama", 4, 128)), nvfp4, {1, 200});
  compare({.hidden = 640, .heads = 10, .inner = 1920, .layers = 2, .more = family("llama", 2, 64)},
          nvfp4, {5, 200});
  compare(
      {.hidden = 4096, .heads = 32, .inner = 14336, .layers = 2, .more = family("llama", 8, 128)},
      nvfp4, {5, 200, 2900});
}

TEST_P(DecodeLayersTest, LlamaInHalfPrecision) {
  if (!is_gpu()) GTEST_SKIP() << "the CPU has no kernel for it";
  compare(small(family("llama", 2, 64)), std::nullopt, contexts({1, 2, 63, 64, 127, 300, 1500}));
  if (is_emulated()) return;
  compare({.hidden = 1024, .heads = 8, .inner = 2816, .layers = 2, .more = family("llama", 8, 128)},
          std::nullopt, {5, 200});
  compare(
      {.hidden = 4096, .heads = 32, .inner = 14336, .layers = 2, .more = family("llama", 8, 128)},
      std::nullopt, {5, 200, 2900});
}

TEST_P(DecodeLayersTest, RelativesOfLlama) {
  if (!is_gpu()) GTEST_SKIP() << "the CPU has no kernel for it";
  const Format nvfp4 = Format::nvfp4;
  const std::vector<std::int64_t> some = contexts({1, 30, 64, 300});
  compare(small(with(family("mistral", 2, 64), "sliding_window", 20)), nvfp4, some);
  compare(small(family("qwen2", 2, 64)), nvfp4, some);
  compare(small(with(with(family("llama", 2, 64), "attention_bias", true), "mlp_bias", true)),
          nvfp4, some);
  compare(small(family("llama", 2, 64)), nvfp4, {70}, CachePolicy::last(50));
}

TEST_P(DecodeLayersTest, TheSameBitsTwice) {
  if (!is_gpu()) GTEST_SKIP() << "the CPU has no kernel for it";
  if (is_emulated()) GTEST_SKIP() << "its blocks do not run side by side";
  const Shape shape{.hidden = 640, .heads = 8, .inner = 2560, .layers = 4};
  std::vector<std::vector<float>> rows[2];
  for (auto& run : rows) {
    Stream stream(ctx(), shape, Format::nvfp4, true, CachePolicy::full());
    stream.feed_until(150);
    for (int i = 0; i < 20; ++i) run.push_back(stream.feed(1));
  }
  EXPECT_EQ(rows[0], rows[1]);
}

// There, attention by itself is faster.
TEST_P(DecodeLayersTest, ALongContextRunsOpByOp) {
  if (!is_gpu()) GTEST_SKIP() << "the CPU has no kernel for it";
  if (is_emulated()) GTEST_SKIP() << "slow there";
  const Shape shape{.hidden = 256, .heads = 4, .inner = 512, .layers = 2};
  Stream stream(ctx(), shape, Format::nvfp4, true, CachePolicy::full());
  stream.feed_until(3500);
  ctx().trace().clear();
  stream.feed(1);
  EXPECT_EQ(calls("decode_layers"), 0);
  EXPECT_FALSE(stream.plans_to_fuse());
}

// What a token must read: the floor of its time.
TEST_P(DecodeLayersTest, TheTraceCountsAllThatATokenReads) {
  if (!is_gpu()) GTEST_SKIP() << "the CPU has no kernel for it";
  Stream stream(ctx(), {.hidden = 256, .heads = 4, .inner = 512, .layers = 2}, std::nullopt, true,
                CachePolicy::full());
  ctx().trace().clear();
  stream.feed(1);
  for (const TraceEntry& call : ctx().trace().entries()) {
    if (call.op != "decode_layers") continue;
    const std::int64_t weights = 4 * 256 * 256 + 2 * 256 * 512, biases = 4 * 256 + 512 + 256,
                       norms = 4 * 256;
    const std::int64_t keys = 8 * 64;  // of the smallest page table
    const std::int64_t read = weights + biases + norms + 2 * (keys + 1) * 256;
    const std::int64_t x = 256, row = 256, final_norm = 2 * 256, id = 4;  // id: bytes
    EXPECT_EQ(call.bytes, 2 * (2 * read + row + final_norm + x) + id);
    EXPECT_EQ(call.flops, 2 * (2 * weights + 4 * keys * 256));
    return;
  }
  FAIL() << "decode_layers has not run";
}

// Sinks rotate keys as they are read, a step of several tokens is no token, int8 has no kernel, and
// neither have keys of 8 bits.
TEST_P(DecodeLayersTest, OtherStepsRunOpByOp) {
  if (!is_gpu()) GTEST_SKIP() << "the CPU has no kernel for it";
  const Shape shape{.hidden = 256, .heads = 4, .inner = 512, .layers = 2};
  Stream sinks(ctx(), shape, Format::nvfp4, true, CachePolicy::sinks(4, 60));
  sinks.feed(1);
  Stream several(ctx(), shape, Format::nvfp4, true, CachePolicy::full());
  several.feed(3);
  Stream ints(ctx(), shape, Format::int8, true, CachePolicy::full());
  ints.feed(1);
  Stream small_keys(ctx(), shape, Format::nvfp4, true, CachePolicy::full(), DType::i8);
  small_keys.feed(1);
  EXPECT_EQ(calls("decode_layers"), 0);
  EXPECT_GT(calls("append_attention"), 0);
  for (const Stream* stream : {&sinks, &several, &ints, &small_keys}) {
    EXPECT_FALSE(stream->plans_to_fuse());
  }
}

// Qwen3 norms the heads of query and key, and layers with windows of their own see other keys.
TEST_P(DecodeLayersTest, OtherLlamasRunOpByOp) {
  if (!is_gpu()) GTEST_SKIP() << "the CPU has no kernel for it";
  Stream qwen3(ctx(), small(family("qwen3", 2, 64)), Format::nvfp4, true, CachePolicy::full());
  qwen3.feed(1);
  const model::Json some_windows = {
      {"use_sliding_window", true}, {"sliding_window", 30}, {"max_window_layers", 1}};
  model::Json json = family("qwen2", 2, 64);
  json.update(some_windows);
  Stream mixed(ctx(), small(json), Format::nvfp4, true, CachePolicy::full());
  mixed.feed(1);
  Stream apart(ctx(), small(family("llama", 2, 64)), Format::nvfp4, false, CachePolicy::full());
  apart.feed(1);
  EXPECT_EQ(calls("decode_layers"), 0);
  EXPECT_GT(calls("append_attention"), 0);
  for (const Stream* stream : {&qwen3, &mixed, &apart}) EXPECT_FALSE(stream->plans_to_fuse());
}

INSTANTIATE_TEST_SUITE_P(Devices, DecodeLayersTest, testing::ValuesIn(test_devices()), device_name);

}  // namespace
}  // namespace tessera::test
