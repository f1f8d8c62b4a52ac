#include "server/openapi.h"

#include <fmt/format.h>

#include <string>

#include "server/answer_schema.h"
#include "server/request_fields.h"
#include "server/routes.h"
#include "tessera/version.h"

namespace tessera::server {
namespace {

using Json = nlohmann::json;

Json reference(const std::string& name) { return {{"$ref", "#/components/schemas/" + name}}; }

Json content(const std::string& type, Json schema) {
  return {{"content", {{type, {{"schema", std::move(schema)}}}}}};
}

// A member that is null counts as missing, so null is one of its values.
Json nullable(const Json& schema) { return {{"anyOf", {schema, {{"type", "null"}}}}}; }

Json body_schema(Body body) {
  Json properties = Json::object(), required = Json::array();
  for (const RequestField& field : request_fields(body)) {
    Json schema = field.required ? field.schema : nullable(field.schema);
    schema["description"] = field.help;
    properties[field.name] = std::move(schema);
    if (field.required) required.push_back(field.name);
  }
  return {{"type", "object"},
          {"properties", std::move(properties)},
          {"required", std::move(required)},
          {"additionalProperties", {{"type", "null"}}}};
}

Json with_description(Json response, const std::string& description) {
  response["description"] = description;
  return response;
}

Json error_response(const std::string& description) {
  return with_description(content("application/json", reference("Error")), description);
}

// What any route may answer.
void add_errors(Json& responses, bool has_body) {
  responses["431"] = error_response("Headers that are too large");
  responses["500"] = error_response("A failure of the server");
  responses["503"] = error_response("Loading, shutting down or out of memory");
  if (!has_body) return;
  responses["400"] = error_response("A field that is missing, unknown or out of range");
  responses["404"] = error_response("Another model than the server's");
  responses["408"] = error_response("A request that took too long to arrive");
  responses["413"] = error_response("A body that is too large");
  responses["415"] = error_response("A body that is not application/json");
  responses["429"] = error_response("A full queue; Retry-After says when to try again");
  responses["501"] = error_response("A Transfer-Encoding other than chunked");
}

Json get_operation(const std::string& summary, Json answer) {
  Json responses = {{"200", with_description(std::move(answer), summary)}};
  add_errors(responses, false);
  return {{"get", {{"summary", summary}, {"responses", std::move(responses)}}}};
}

// Of requests for text, whose fields can contradict each other.
Json with_contradictions(Json operation) {
  operation["post"]["responses"]["422"] =
      error_response("Fields that are right, and contradict each other or what the model can do");
  return operation;
}

Json post_operation(const std::string& summary, const std::string& body, Json answer) {
  Json responses = {{"200", with_description(std::move(answer), summary)}};
  add_errors(responses, true);
  Json request = content("application/json", reference(body));
  request["required"] = true;
  return {{"post",
           {{"summary", summary},
            {"requestBody", std::move(request)},
            {"responses", std::move(responses)}}}};
}

// An answer in one piece, or as server-sent events, whose shape OpenAPI 3.1 has no words for.
Json streamable(const std::string& schema) {
  Json answer = content("application/json", reference(schema));
  answer["content"]["text/event-stream"] = Json::object();
  return answer;
}

Json make_paths() {
  Json health = get_operation("Ready, or how far the loading is",
                              content("application/json", reference("Health")));
  health["get"]["responses"]["503"] = with_description(
      content("application/json", reference("Health")), "Loading, with its progress, or draining");
  Json model = get_operation("One model", content("application/json", reference("Model")));
  model["get"]["responses"]["404"] = error_response("Another model than the server's");
  model["get"]["parameters"] = Json::array({{{"name", "model"},
                                             {"in", "path"},
                                             {"required", true},
                                             {"schema", {{"type", "string"}, {"minLength", 1}}}}});
  return {
      {"/", get_operation("The page", content("text/html", {{"type", "string"}}))},
      {"/health", std::move(health)},
      {"/metrics",
       get_operation("Figures for Prometheus", content("text/plain", {{"type", "string"}}))},
      {"/v1/models", get_operation("The models", content("application/json", reference("Models")))},
      {"/v1/models/{model}", std::move(model)},
      {"/v1/completions",
       with_contradictions(post_operation("Continue a text; as a stream, each event is a "
                                          "CompletionChunk, and the last [DONE]",
                                          "CompletionRequest", streamable("Completion")))},
      {"/v1/chat/completions",
       with_contradictions(post_operation("Answer a conversation; as a stream, each event is a "
                                          "ChatCompletionChunk, and the last [DONE]",
                                          "ChatRequest", streamable("ChatCompletion")))},
      {"/tokenize", post_operation("A text as token ids", "TokenizeRequest",
                                   content("application/json", reference("Tokens")))},
      {"/detokenize", post_operation("Token ids as a text", "DetokenizeRequest",
                                     content("application/json", reference("Text")))},
  };
}

Json all_schemas() {
  Json schemas = answer_schemas();
  schemas["CompletionRequest"] = body_schema(Body::completion);
  schemas["ChatRequest"] = body_schema(Body::chat);
  schemas["TokenizeRequest"] = body_schema(Body::tokenize);
  schemas["DetokenizeRequest"] = body_schema(Body::detokenize);
  return schemas;
}

// Says of each operation that wants the key that it does.
void add_security(Json& document) {
  document["components"]["securitySchemes"] = {{"key", {{"type", "http"}, {"scheme", "bearer"}}}};
  for (const auto& [path, operations] : document["paths"].items()) {
    for (const auto& [method, operation] : operations.items()) {
      const http::verb verb = method == "post" ? http::verb::post : http::verb::get;
      if (find_route(verb, path).is_open) continue;
      operation["security"] = Json::array({{{"key", Json::array()}}});
      operation["responses"]["401"] = error_response("No API key, or a wrong one");
    }
  }
}

Json make_document(bool wants_key) {
  Json document = {{"openapi", "3.1.0"},
                   {"info",
                    {{"title", "Tessera"},
                     {"version", version()},
                     {"description", "Language models behind the endpoints of the OpenAI API"}}},
                   {"paths", make_paths()},
                   {"components", {{"schemas", all_schemas()}}}};
  if (wants_key) add_security(document);
  return document;
}

}  // namespace

const Json& openapi_document(bool wants_key) {
  static const Json open = make_document(false), guarded = make_document(true);
  return wants_key ? guarded : open;
}

}  // namespace tessera::server
