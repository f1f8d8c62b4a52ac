// Every registry entry does what it claims, and an architecture needs nothing but its entry.
#include "model/architectures/registry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "model/architectures/config.h"
#include "model/checkpoint/random_weights.h"
#include "reference/parity.h"
#include "support/refusal.h"
#include "tessera/trace.h"

namespace tessera::test {
namespace {

using model::Architecture;
using model::architectures;
using model::Json;
using model::JsonView;
using Keys = std::set<std::string, std::less<>>;

Json small_json(const Architecture& architecture) {
  return {
      {"model_type", architecture.name},
      {"architectures", {architecture.causal_lm}},
      {"hidden_size", 64},
      {"num_hidden_layers", 2},
      {"num_attention_heads", 4},
      {"num_key_value_heads", 4},
      {"intermediate_size", 128},
      {"vocab_size", 100},
      // This scaling asks for the most keys.
      {"rope_parameters",
       {{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 1}, {"high_freq_factor", 4}}}};
}

Keys keys_asked(const Architecture& architecture, const Json& json) {
  Keys asked;
  JsonView view(json, "config.json");
  view.record_keys(asked);
  (void)model::read_config_as(architecture, view);
  return asked;
}

TEST(Registry, EntriesReadTheKeysTheyClaimAndNoOthers) {
  for (const Architecture* entry : architectures()) {
    SCOPED_TRACE(entry->name);
    const Json json = small_json(*entry);
    Architecture shared = *entry;  // reads what every architecture reads
    shared.read_options = [](const JsonView&, ModelConfig&) {};
    const Keys common = keys_asked(shared, json);
    Keys own;
    for (const std::string& key : keys_asked(*entry, json)) {
      if (!common.contains(key)) own.insert(key);
    }
    EXPECT_EQ(own, Keys(entry->keys.begin(), entry->keys.end()));
    EXPECT_EQ(own.size(), entry->keys.size()) << "a key is listed twice";
  }
}

TEST(Registry, EntriesAreFoundByTypeByClassAndByName) {
  Keys names, classes;
  for (const Architecture* entry : architectures()) {
    SCOPED_TRACE(entry->name);
    EXPECT_TRUE(names.emplace(entry->name).second);
    EXPECT_TRUE(classes.emplace(entry->causal_lm).second);
    for (const char* without : {"", "model_type", "architectures"}) {
      Json json = small_json(*entry);
      json.erase(without);
      EXPECT_EQ(model::model_config_of(json, "config.json").architecture, entry->name);
    }
    ModelConfig config;
    config.architecture = entry->name;
    EXPECT_EQ(&model::find_architecture(config), entry);
  }
}

TEST(Registry, EntriesBuildTheModulesTheyNameAndCallTheOpsTheyList) {
  Context ctx;
  for (const Architecture* entry : architectures()) {
    SCOPED_TRACE(entry->name);
    const ModelConfig config = model::model_config_of(small_json(*entry), "config.json");
    const auto built = model::make_random_model(ctx, config);

    const model::ModuleNames& names = entry->modules;
    std::vector<std::string> expected, actual;
    for (std::int64_t layer = 0; layer < config.layers; ++layer) {
      for (const std::string_view module : names.qkv) {
        expected.push_back(names.in_layer(layer, module));
      }
      for (const std::string_view module : {names.output, names.gate, names.up, names.down}) {
        if (!module.empty()) expected.push_back(names.in_layer(layer, module));
      }
    }
    expected.emplace_back(names.heads.front());
    for (const LayerInfo& layer : built->linear_layers()) actual.push_back(layer.name);
    EXPECT_EQ(actual, expected);

    const auto calls = [&](std::int64_t prompt_tokens, std::int64_t tokens) {
      ctx.trace().clear();
      ctx.trace().enable();
      const std::vector<std::int32_t> prompt(static_cast<std::size_t>(prompt_tokens), 1);
      reference::generate_greedy(ctx, *built, prompt, tokens);
      ctx.trace().enable(false);
      std::map<std::string, std::int64_t> count;
      for (const TraceEntry& call : ctx.trace().entries()) count[call.op] += call.calls;
      return count;
    };
    const auto promised = [&](std::int64_t tokens) {
      std::map<std::string, std::int64_t> listed;
      const model::StepKind kind = model::step_kind(tokens, /*fusion=*/{});
      for (const auto& op : entry->promised_calls(config, kind)) listed[op.op] = op.calls;
      return listed;
    };
    for (const std::int64_t tokens : {1, 3, 16, 17, 24}) {
      SCOPED_TRACE(tokens);
      std::map<std::string, std::int64_t> prompt = calls(tokens, 1), step = calls(tokens, 2);
      EXPECT_EQ(prompt, promised(tokens));
      for (const auto& [op, count] : prompt) step[op] -= count;
      std::erase_if(step, [](const auto& op) { return op.second == 0; });  // of the prompt alone
      EXPECT_EQ(step, promised(1));
    }
  }
}

// ---- an architecture of a test ------------------------------------------------------------------

class Toy final : public Model {
 public:
  explicit Toy(const ModelConfig& config) { config_ = config; }
  void forward(Context&, const ForwardArgs&) const override {}
};

constexpr std::string_view kToyKeys[] = {"num_experts", "toy_size"};
constexpr Architecture kToy{
    .name = "toy",
    .causal_lm = "ToyForCausalLM",
    .defaults = {.max_positions = 77, .eps_key = "toy_eps", .eps = 0.5, .bos = 3, .eos = 4},
    .keys = kToyKeys,
    .read_options =
        [](const JsonView& json, ModelConfig& config) {
          config.head_dim = json.integer("toy_size", 1, 9) * json.integer("num_experts", 1, 9);
        },
    .make = [](const ModelConfig& config, DType, model::WeightSource&) -> std::unique_ptr<Model> {
      return std::make_unique<Toy>(config);
    },
    .norm = NormKind::rms_norm,
    .modules = {},
    .layer_calls = [](const ModelConfig&) { return std::vector<model::StepCalls>(); }};

TEST(Registry, AnEntryIsAllThatAnArchitectureNeeds) {
  Json json = small_json(kToy);
  json["toy_size"] = 2;
  json["num_experts"] = 3;  // refused by architectures that do not read it
  const ModelConfig config = model::read_config_as(kToy, JsonView(json, "config.json"));
  EXPECT_EQ(config.architecture, "toy");
  EXPECT_EQ(config.head_dim, 6);
  EXPECT_EQ(config.max_positions, 77);
  EXPECT_EQ(config.norm_eps, 0.5);
  EXPECT_EQ(config.bos, 3);
  EXPECT_EQ(config.eos, std::vector<std::int64_t>{4});

  json["sliding_window"] = 5;
  EXPECT_TRUE(refuses([&] { model::read_config_as(kToy, JsonView(json, "config.json")); },
                      "config.json: sliding_window is 5, an option that is not supported for toy "
                      "(mistral, qwen2, qwen3 have it); leave it out",
                      ErrorCode::file));
}

TEST(Registry, RefusesNamesItDoesNotHave) {
  ModelConfig config;
  config.architecture = "toy";
  EXPECT_TRUE(refuses([&] { model::find_architecture(config); },
                      "ModelConfig::architecture \"toy\" is not supported; supported: " +
                          model::supported_architectures(),
                      ErrorCode::invalid_argument));
}

}  // namespace
}  // namespace tessera::test
