#include "server/answer_schema.h"

#include <initializer_list>
#include <string>
#include <utility>

namespace tessera::server {
namespace {

using Json = nlohmann::json;

const Json kString = {{"type", "string"}}, kCount = {{"type", "integer"}, {"minimum", 0}},
           kNumber = {{"type", "number"}}, kTruth = {{"type", "boolean"}},
           kNull = {{"type", "null"}};

Json list_of(Json items) { return {{"type", "array"}, {"items", std::move(items)}}; }
Json or_null(const Json& schema) { return {{"anyOf", {schema, kNull}}}; }
Json one_of(std::initializer_list<const char*> words) {
  return {{"type", "string"}, {"enum", words}};
}

// An object that always has all of these members.
Json object_of(Json properties) {
  Json required = Json::array();
  for (const auto& [name, schema] : properties.items()) required.push_back(name);
  return {
      {"type", "object"}, {"properties", std::move(properties)}, {"required", std::move(required)}};
}

Json usage_shape() {
  return object_of({{"prompt_tokens", kCount},
                    {"completion_tokens", kCount},
                    {"total_tokens", kCount},
                    {"prompt_tokens_details", object_of({{"cached_tokens", kCount}})}});
}

// Four lists side by side, one item a token.
Json completion_logprobs_shape() {
  const Json top = {{"type", "object"}, {"additionalProperties", kNumber}};
  return or_null(object_of({{"tokens", list_of(kString)},
                            {"token_logprobs", list_of(kNumber)},
                            {"top_logprobs", list_of(top)},
                            {"text_offset", list_of(kCount)}}));
}

Json chat_logprobs_shape() {
  const Json byte = {{"type", "integer"}, {"minimum", 0}, {"maximum", 255}};
  Json token = object_of({{"token", kString}, {"logprob", kNumber}, {"bytes", list_of(byte)}});
  const Json other = token;
  token["properties"]["top_logprobs"] = list_of(other);
  token["required"].push_back("top_logprobs");
  return or_null(object_of({{"content", list_of(std::move(token))}, {"refusal", kNull}}));
}

// What all answers to requests for text have.
Json answer_shape(const char* object, const Json& choice) {
  return object_of({{"id", kString},
                    {"object", one_of({object})},
                    {"created", kCount},
                    {"model", kString},
                    {"choices", list_of(choice)}});
}

Json whole_shape(const char* object, Json choice) {
  choice["index"] = kCount;
  choice["finish_reason"] = one_of({"stop", "length"});
  Json answer = answer_shape(object, object_of(std::move(choice)));
  answer["properties"]["usage"] = usage_shape();
  answer["required"].push_back("usage");
  answer["properties"]["choices"]["minItems"] = 1;
  return answer;
}

// An event of a stream. With stream_options.include_usage the last one has the usage and no choice.
Json chunk_shape(const char* object, Json choice) {
  choice["index"] = kCount;
  choice["finish_reason"] = or_null(one_of({"stop", "length"}));
  Json answer = answer_shape(object, object_of(std::move(choice)));
  answer["properties"]["usage"] = or_null(usage_shape());
  answer["properties"]["choices"]["maxItems"] = 1;
  return answer;
}

Json message_shape() {
  return object_of({{"role", one_of({"assistant"})}, {"content", kString}, {"refusal", kNull}});
}

// The first piece has the role, the last one may be empty.
Json delta_shape() {
  return {{"type", "object"},
          {"properties", {{"role", one_of({"assistant"})}, {"content", kString}}}};
}

Json model_shape() {
  const Json details = object_of({{"chat", kTruth},
                                  {"context", kCount},
                                  {"trained_context", kCount},
                                  {"page_size", kCount},
                                  {"page_bytes", kCount},
                                  {"attention_sinks", kCount},
                                  {"window", kCount},
                                  {"max_sequences", kCount}});
  return object_of({{"id", kString},
                    {"object", one_of({"model"})},
                    {"created", kCount},
                    {"owned_by", kString},
                    {"tessera", details}});
}

Json health_shape() {
  return {{"type", "object"},
          {"properties",
           {{"status", one_of({"ok", "loading", "draining"})},
            {"progress", {{"type", "number"}, {"minimum", 0}, {"maximum", 1}}}}},
          {"required", {"status"}}};
}

Json error_shape() {
  return object_of({{"error", object_of({{"message", kString},
                                         {"type", kString},
                                         {"param", or_null(kString)},
                                         {"code", or_null(kString)}})}});
}

Json make_schemas() {
  const Json ids = list_of(kCount);
  return {
      {"Completion", whole_shape("text_completion",
                                 {{"text", kString}, {"logprobs", completion_logprobs_shape()}})},
      {"CompletionChunk",
       chunk_shape("text_completion",
                   {{"text", kString}, {"logprobs", completion_logprobs_shape()}})},
      {"ChatCompletion", whole_shape("chat.completion", {{"message", message_shape()},
                                                         {"logprobs", chat_logprobs_shape()}})},
      {"ChatCompletionChunk",
       chunk_shape("chat.completion.chunk",
                   {{"delta", delta_shape()}, {"logprobs", chat_logprobs_shape()}})},
      {"Model", model_shape()},
      {"Models", object_of({{"object", one_of({"list"})}, {"data", list_of(model_shape())}})},
      {"Health", health_shape()},
      {"Tokens", object_of({{"tokens", ids}, {"count", kCount}})},
      {"Text", object_of({{"content", kString}})},
      {"Error", error_shape()}};
}

}  // namespace

const Json& answer_schemas() {
  static const Json schemas = make_schemas();
  return schemas;
}

}  // namespace tessera::server
