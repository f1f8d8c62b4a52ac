#include "batch_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "generation_flags.h"
#include "model/checkpoint/json.h"
#include "model/checkpoint/quote.h"
#include "ops/sampling_table.h"
#include "option_checks.h"
#include "suggestion.h"

namespace tessera::app {
namespace {

using model::Json;
using model::JsonView;

constexpr std::int64_t kMostPriority = 1'000'000;

[[noreturn]] void refuse_field(const JsonView& line, const std::string& field, const Json& value,
                               std::string_view accepted) {
  fail(ErrorCode::invalid_argument, "{}: {} is {}, it must be {}", line.where(), field,
       model::describe(value), accepted);
}

// All but those of the sampling table.
const std::vector<std::string>& plain_fields() {
  static const std::vector<std::string> fields = {
      "custom_id", "prompt",   "prompt_ids", "messages",   "max_tokens", "seed",
      "stop",      "logprobs", "n",          "logit_bias", "ignore_eos", "priority"};
  return fields;
}

void refuse_unknown_fields(const JsonView& line) {
  std::vector<std::string> fields = plain_fields();
  for (const SamplingOption& option : sampling_table()) fields.emplace_back(option.name);
  for (const auto& [field, value] : line.json().items()) {
    if (std::find(fields.begin(), fields.end(), field) != fields.end()) continue;
    const std::string meant = nearest(field, fields);
    fail(ErrorCode::invalid_argument, "{}: there is no field {}; {}", line.where(),
         model::in_quotes(field),
         meant.empty() ? fmt::format("the fields are {}", fmt::join(fields, ", "))
                       : fmt::format("did you mean \"{}\"?", meant));
  }
}

void read_sampling_table(const JsonView& line, SamplingOptions& sampling) {
  for (const SamplingOption& option : sampling_table()) {
    const std::string field(option.name);
    const Json* value = line.find(field);
    if (value == nullptr) continue;
    if (option.count) {
      const auto number = line.optional_integer(field, 0, std::numeric_limits<std::int32_t>::max());
      sampling.*option.count = *number;
    } else {
      sampling.*option.number = *line.optional_number(field);
    }
    if (!option.accepts(option.value(sampling))) refuse_field(line, field, *value, option.accepted);
  }
  // --greedy is the default of lines that do not say how to draw.
  if (line.has("temperature")) sampling.greedy = false;
}

// {"50256": -100}
std::vector<std::pair<std::int32_t, float>> read_logit_bias(const JsonView& line) {
  std::vector<std::pair<std::int32_t, float>> biases;
  for (const auto& [key, value] : line.optional_object("logit_bias")->json().items()) {
    std::int32_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size()) {
      fail(ErrorCode::invalid_argument,
           "{}: logit_bias names {}, which is not a token id; write {{\"50256\": -100}}",
           line.where(), model::in_quotes(key));
    }
    if (!value.is_number()) refuse_field(line, "logit_bias of " + key, value, "a number");
    biases.emplace_back(id, value.get<float>());
  }
  return biases;
}

std::vector<std::string> read_stop(const JsonView& line) {
  const Json& value = *line.find("stop");
  std::vector<std::string> stop =
      value.is_string() ? std::vector{value.get<std::string>()} : line.strings("stop");
  if (std::find(stop.begin(), stop.end(), "") != stop.end()) {
    fail(ErrorCode::invalid_argument, "{}: stop has an empty text, which would end every answer",
         line.where());
  }
  return stop;
}

GenerateOptions read_options(const JsonView& line, GenerateOptions options) {
  read_sampling_table(line, options.sampling);
  if (const auto v = line.optional_integer("max_tokens", -1, kMostTokens)) options.max_tokens = *v;
  if (const auto v = line.optional_integer("seed", 0, std::numeric_limits<std::int64_t>::max())) {
    options.sampling.seed = static_cast<std::uint64_t>(*v);
  }
  if (const auto v = line.optional_integer("logprobs", 0, kMostLogprobs)) options.top_logprobs = *v;
  if (const auto v = line.optional_boolean("ignore_eos")) options.ignore_eos = *v;
  if (line.has("stop")) options.stop = read_stop(line);
  if (line.has("logit_bias")) options.sampling.logit_bias = read_logit_bias(line);
  return options;
}

std::vector<std::int32_t> read_prompt_ids(const JsonView& line) {
  const Json& value = *line.find("prompt_ids");
  if (!value.is_array()) refuse_field(line, "prompt_ids", value, "an array of token ids");
  std::vector<std::int32_t> ids;
  ids.reserve(value.size());
  for (const Json& item : value) {
    const bool fits =
        item.is_number_integer() && item >= 0 && item <= std::numeric_limits<std::int32_t>::max();
    if (!fits) refuse_field(line, fmt::format("prompt_ids[{}]", ids.size()), item, "a token id");
    ids.push_back(item.get<std::int32_t>());
  }
  return ids;
}

std::vector<ChatMessage> read_messages(const JsonView& line) {
  const Json& value = *line.find("messages");
  if (!value.is_array()) refuse_field(line, "messages", value, "a list of {role, content}");
  std::vector<ChatMessage> messages;
  for (const Json& item : value) {
    const JsonView view(item, fmt::format("{}, messages[{}]", line.where(), messages.size()));
    messages.push_back({view.string("role"), view.string("content")});
  }
  return messages;
}

}  // namespace

RequestReader::RequestReader(const Session& session, GenerateOptions defaults,
                             const CachePolicy& policy, const std::string& template_name)
    : session_(session), defaults_(std::move(defaults)), policy_(policy) {
  if (!session.tokenizer) return;
  prompt_.emplace(*session.tokenizer, session.model->config(), session.directory);
  if (!template_name.empty()) {
    chat_.emplace(*prompt_, chat_template(template_name));
    return;
  }
  try {
    if (auto chat = folder_chat_template(session.directory)) {
      chat_.emplace(*prompt_, *std::move(chat));
    }
  } catch (const Error& error) {
    why_no_chat_ = error.what();  // only lines with messages need one
  }
}

Request RequestReader::read(const nlohmann::json& json, const std::string& where) const {
  const JsonView line(json, where);
  refuse_unknown_fields(line);
  const int prompts = line.has("prompt") + line.has("prompt_ids") + line.has("messages");
  if (prompts != 1) {
    fail(ErrorCode::invalid_argument,
         "{}: there is {} prompt; give exactly one of prompt, prompt_ids and messages", where,
         prompts == 0 ? "no" : "more than one");
  }
  Request request;
  request.options = read_options(line, defaults_);
  request.policy = policy_;
  if (const auto n = line.optional_integer("n", 1, kMostTokens)) request.n = *n;
  if (const auto v = line.optional_integer("priority", -kMostPriority, kMostPriority)) {
    request.priority = static_cast<int>(*v);
  }
  if (line.has("prompt_ids")) {
    request.prompt_ids = read_prompt_ids(line);
    return request;
  }
  session_.need_tokenizer("give prompt_ids instead");
  if (line.has("prompt")) {
    request.prompt_ids = prompt_->encode(line.string("prompt"));
    return request;
  }
  if (!chat_) {
    fail(ErrorCode::invalid_argument,
         "{}: {}; choose a template with --chat-template, or give prompt", where, why_no_chat_);
  }
  request.prompt_ids = chat_->encode(read_messages(line));
  if (chat_->turn_end() >= 0) request.options.stop_ids = {chat_->turn_end()};
  return request;
}

}  // namespace tessera::app
