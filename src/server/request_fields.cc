#include "server/request_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/checkpoint/json.h"
#include "model/checkpoint/quote.h"
#include "ops/sampling_table.h"
#include "server/api_error.h"
#include "server/limits.h"
#include "server/schema.h"

namespace tessera::server {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMostId = std::numeric_limits<std::int32_t>::max();

Json integer_schema(std::int64_t least, std::int64_t most) {
  return {{"type", "integer"}, {"minimum", least}, {"maximum", most}};
}

Json number_schema(double least, double most) {
  return {{"type", "number"}, {"minimum", least}, {"maximum", most}};
}

Json list_schema(Json items, std::int64_t least, std::int64_t most) {
  return {{"type", "array"}, {"items", std::move(items)}, {"minItems", least}, {"maxItems", most}};
}

Json text_schema(std::int64_t least, std::int64_t most) {
  return {{"type", "string"}, {"minLength", least}, {"maxLength", most}};
}

const Json kBoolean = {{"type", "boolean"}};
const Json kText = {{"type", "string"}};

// The ranges of the sampling table as a schema; the table's own check decides.
Json sampling_schema(const SamplingOption& option) {
  if (option.count) return integer_schema(static_cast<std::int64_t>(option.lowest), kMostId);
  Json schema = {{"type", "number"}};
  schema[option.above_lowest ? "exclusiveMinimum" : "minimum"] = option.lowest;
  if (std::isfinite(option.highest)) schema["maximum"] = option.highest;
  return schema;
}

// What completions and chats have in common.
std::vector<RequestField> shared_fields() {
  std::vector<RequestField> fields = {
      {"model", kText, "a text", "The id of /v1/models; the server has one"},
      {"max_tokens", integer_schema(1, kMostTokens),
       fmt::format("a whole number from 1 to {}", kMostTokens), "The most tokens of an answer"},
      {"n", integer_schema(1, kMostChoices),
       fmt::format("a whole number from 1 to {}", kMostChoices),
       "So many answers to one prompt; answer i draws with the seed + i"},
      {"stop",
       {{"anyOf",
         {text_schema(1, kMostStopLength),
          list_schema(text_schema(1, kMostStopLength), 0, kMostStops)}}},
       fmt::format("a text of 1 to {} characters or a list of at most {} such texts",
                   kMostStopLength, kMostStops),
       "An answer ends before the first of these"},
      {"stream", kBoolean, "true or false", "Send tokens as they come, as server-sent events"},
      {"stream_options",
       {{"type", "object"},
        {"properties", {{"include_usage", kBoolean}}},
        {"additionalProperties", false}},
       "an object with include_usage",
       "With stream: include_usage sends a last event with the numbers of tokens"},
      {"seed",
       integer_schema(std::numeric_limits<std::int64_t>::min(),
                      std::numeric_limits<std::int64_t>::max()),
       "a whole number of 64 bits",
       "The same seed gives the same answer; without it, a random one"},
      {"logit_bias",
       {{"type", "object"},
        {"additionalProperties", number_schema(-100, 100)},
        {"maxProperties", kMostBiases}},
       fmt::format("an object of at most {} token ids with numbers from -100 to 100", kMostBiases),
       "Added to the logits of these tokens: {\"17\": -100}"},
      {"user", kText, "a text", "Accepted as other servers do, and not used"},
      {"response_format",
       {{"type", "object"},
        {"properties", {{"type", {{"type", "string"}, {"enum", {"text"}}}}}},
        {"required", {"type"}},
        {"additionalProperties", false}},
       "{\"type\": \"text\"}; other formats are not supported",
       "Text is the one format"},
      {"attention_sinks", integer_schema(0, kMostTokens),
       fmt::format("a whole number from 0 to {}", kMostTokens),
       "Keep the first tokens beside the window, for answers of any length"},
      {"window", integer_schema(1, kMostTokens),
       fmt::format("a whole number from 1 to {}", kMostTokens),
       "Keep this many recent tokens instead of all"},
      {"ignore_eos", kBoolean, "true or false", "Go on after an end token"},
      {"cache_prompt", kBoolean, "true or false",
       "Find the prompt's beginning in the cache of earlier ones (default: true)"},
  };
  for (const SamplingOption& option : sampling_table()) {
    fields.push_back({std::string(option.name), sampling_schema(option),
                      std::string(option.accepted), std::string(option.help)});
  }
  return fields;
}

std::vector<RequestField> completion_fields() {
  const Json ids = list_schema(integer_schema(0, kMostId), 1, kMostTokens);
  std::vector<RequestField> fields = shared_fields();
  fields.insert(
      fields.begin(),
      {"prompt",
       {{"anyOf",
         {text_schema(1, kMostId), list_schema(text_schema(1, kMostId), 1, kMostChoices), ids,
          list_schema(ids, 1, kMostChoices)}}},
       fmt::format("a text, a list of token ids, or a list of at most {} of either; none is empty",
                   kMostChoices),
       "What to continue",
       true});
  fields.push_back({"logprobs", integer_schema(0, kMostLogprobs),
                    fmt::format("a whole number from 0 to {}", kMostLogprobs),
                    "Log-probabilities of the tokens, and of this many of the likeliest"});
  fields.push_back(
      {"echo", kBoolean, "true or false", "Begin the text with the prompt; not with logprobs"});
  return fields;
}

// One message of a chat. Parts other than text are refused by name when they are read.
Json message_schema() {
  const Json part = {
      {"type", "object"},
      {"properties", {{"type", {{"type", "string"}, {"enum", {"text"}}}}, {"text", kText}}},
      {"required", {"type", "text"}},
      {"additionalProperties", false}};
  return {{"type", "object"},
          {"properties",
           {{"role", {{"type", "string"}, {"enum", {"system", "developer", "user", "assistant"}}}},
            {"content", {{"anyOf", {kText, list_schema(part, 1, kMostMessages)}}}}}},
          {"required", {"role", "content"}}};
}

std::vector<RequestField> chat_fields() {
  std::vector<RequestField> fields = shared_fields();
  fields.insert(fields.begin(), {"messages", list_schema(message_schema(), 1, kMostMessages),
                                 "a list of {role, content}; roles are system, developer, user and "
                                 "assistant, content is text",
                                 "The conversation so far", true});
  fields.push_back({"max_completion_tokens", integer_schema(1, kMostTokens),
                    fmt::format("a whole number from 1 to {}", kMostTokens),
                    "The newer name of max_tokens"});
  fields.push_back({"logprobs", kBoolean, "true or false", "Log-probabilities of the tokens"});
  fields.push_back({"top_logprobs", integer_schema(0, kMostLogprobs),
                    fmt::format("a whole number from 0 to {}", kMostLogprobs),
                    "With logprobs: how many of the likeliest tokens to report, too"});
  fields.push_back({"chat_template_kwargs",
                    {{"type", "object"}},
                    "an object",
                    "More variables for the model's chat template"});
  return fields;
}

std::vector<RequestField> tokenize_fields() {
  return {{"content", text_schema(0, kMostId), "a text", "The text to encode", true},
          {"add_special", kBoolean, "true or false",
           "Add the tokens that begin a prompt, such as <s> (default: false)"},
          {"parse_special", kBoolean, "true or false",
           "Special tokens written in the text become tokens (default: true)"}};
}

std::vector<RequestField> detokenize_fields() {
  return {{"tokens", list_schema(integer_schema(0, kMostId), 0, kMostTokens), "a list of token ids",
           "The ids to decode", true}};
}

const RequestField* find_field(const std::vector<RequestField>& fields, const std::string& name) {
  const auto found = std::find_if(fields.begin(), fields.end(),
                                  [&](const RequestField& f) { return f.name == name; });
  return found == fields.end() ? nullptr : &*found;
}

std::vector<std::string> names_of(const std::vector<RequestField>& fields) {
  std::vector<std::string> names;
  names.reserve(fields.size());
  for (const RequestField& field : fields) names.push_back(field.name);
  return names;
}

}  // namespace

const std::vector<RequestField>& request_fields(Body body) {
  static const std::vector<RequestField> completion = completion_fields(), chat = chat_fields(),
                                         tokenize = tokenize_fields(),
                                         detokenize = detokenize_fields();
  switch (body) {
    case Body::completion:
      return completion;
    case Body::chat:
      return chat;
    case Body::tokenize:
      return tokenize;
    case Body::detokenize:
      return detokenize;
  }
  return completion;
}

const Json* member(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

bool flag(const Json& object, const char* name, bool otherwise) {
  const Json* value = member(object, name);
  return value != nullptr ? value->get<bool>() : otherwise;
}

void check_fields(const Json& request, Body body) {
  if (!request.is_object()) {
    throw ApiError(
        400, fmt::format("the body is {}; it must be a JSON object", model::describe(request)));
  }
  const std::vector<RequestField>& fields = request_fields(body);
  for (const auto& [name, value] : request.items()) {
    if (value.is_null()) continue;
    const RequestField* field = find_field(fields, name);
    if (field == nullptr) {
      refuse(name, "{} is not supported; the fields are {}", model::in_quotes(name),
             fmt::join(names_of(fields), ", "));
    }
    if (!matches(value, field->schema)) {
      const Mismatch wrong = find_mismatch(value, field->schema);
      refuse(name, "{}{} {}; {} must be {}", name, wrong.path, wrong.what,
             wrong.path.empty() ? "it" : name, field->accepted);
    }
  }
  for (const RequestField& field : fields) {
    if (field.required && member(request, field.name.c_str()) == nullptr) {
      refuse(field.name, "{} is missing; it must be {}", field.name, field.accepted);
    }
  }
}

}  // namespace tessera::server
