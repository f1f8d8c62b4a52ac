#include "server/routes.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "model/checkpoint/json.h"
#include "model/checkpoint/quote.h"
#include "server/openapi.h"
#include "server/page.h"
#include "server/request_fields.h"

namespace tessera::server {
namespace {

using Json = nlohmann::json;

Reply answer_health(const Call& call) {
  if (call.state.draining) return json_reply({{"status", "draining"}}, 503);
  if (call.state.served == nullptr) {
    return json_reply({{"status", "loading"}, {"progress", call.state.progress}}, 503);
  }
  return json_reply({{"status", "ok"}});
}

Reply answer_metrics(const Call& call) {
  const ServedModel* served = call.state.served;
  EngineStats stats;
  if (served != nullptr) stats = served->engine->stats();
  return {.type = "text/plain; version=0.0.4; charset=utf-8",
          .body = call.state.metrics.text(served != nullptr ? &stats : nullptr,
                                          served != nullptr ? served->page_bytes : 0)};
}

Reply answer_page(const Call&) {
  Page page = make_page();
  return {.type = "text/html; charset=utf-8",
          .body = std::move(page.html),
          .headers = {{"Content-Security-Policy", std::move(page.policy)},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cache-Control", "no-store"}}};
}

Reply answer_openapi(const Call& call) {
  return json_reply(openapi_document(call.state.key.is_set()));
}

Json model_json(const ServedModel& served) {
  const EngineOptions& engine = served.engine->options();
  return {{"id", served.name},
          {"object", "model"},
          {"created", served.created},
          {"owned_by", "tessera"},
          {"tessera",
           {{"chat", served.chat != nullptr},
            {"context", engine.context},
            {"trained_context", served.config.max_positions},
            {"page_size", engine.page_size},
            {"page_bytes", served.page_bytes},
            {"attention_sinks", served.policy.n_sink},
            {"window", served.policy.window},
            {"max_sequences", engine.max_sequences}}}};
}

Reply answer_models(const Call& call) {
  return json_reply({{"object", "list"}, {"data", Json::array({model_json(*call.state.served)})}});
}

constexpr std::string_view kModelPath = "/v1/models/";

Reply answer_model(const Call& call) {
  const std::string name = unescaped(call.path.substr(kModelPath.size()));
  if (name == call.state.served->name) return json_reply(model_json(*call.state.served));
  throw no_such_model(name, call.state.served->name);
}

Json read_body(const Call& call, Body body) {
  Json json = model::parse_json(call.request.body(), "the body");
  check_fields(json, body);
  return json;
}

Reply answer_tokenize(const Call& call) {
  const Json body = read_body(call, Body::tokenize);
  const ServedModel& served = *call.state.served;
  std::vector<std::int32_t> ids =
      served.tokenizer.encode(body["content"].get_ref<const std::string&>(),
                              {.parse_special = flag(body, "parse_special", true)});
  if (flag(body, "add_special", false)) ids = served.prompts.begin(std::move(ids));
  return json_reply({{"tokens", ids}, {"count", ids.size()}});
}

Reply answer_detokenize(const Call& call) {
  const Json body = read_body(call, Body::detokenize);
  const auto ids = body["tokens"].get<std::vector<std::int32_t>>();
  try {
    return json_reply({{"content", call.state.served->tokenizer.decode(ids)}});
  } catch (const Error& error) {  // an id that no token has
    refuse("tokens", "{}", error.what());
  }
}

using Work = Route::Work;

constexpr Route kRoutes[] = {
    {http::verb::get, "/", Work::reply, answer_page, true, false},
    {http::verb::get, "/health", Work::reply, answer_health, true, false},
    {http::verb::get, "/metrics", Work::reply, answer_metrics, false, false},
    {http::verb::get, "/openapi.json", Work::reply, answer_openapi, true, false},
    {http::verb::get, "/v1/models", Work::reply, answer_models},
    {http::verb::get, kModelPath, Work::reply, answer_model},
    {http::verb::post, "/v1/completions", Work::completion},
    {http::verb::post, "/v1/chat/completions", Work::chat},
    {http::verb::post, "/tokenize", Work::worker, answer_tokenize},
    {http::verb::post, "/detokenize", Work::worker, answer_detokenize},
};

bool has_path(const Route& route, std::string_view path) {
  const bool is_prefix = route.path.size() > 1 && route.path.ends_with('/');
  return is_prefix ? path.starts_with(route.path) && path.size() > route.path.size()
                   : path == route.path;
}

}  // namespace

std::span<const Route> routes() { return kRoutes; }

std::string allowed_methods(std::string_view path) {
  std::string methods;
  for (const Route& route : kRoutes) {
    if (!has_path(route, path)) continue;
    methods += methods.empty() ? "" : ", ";
    methods += route.method == http::verb::get ? "GET, HEAD" : "POST";
  }
  return methods;
}

const Route& find_route(http::verb method, std::string_view path) {
  if (method == http::verb::head) method = http::verb::get;
  const auto found = std::find_if(std::begin(kRoutes), std::end(kRoutes), [&](const Route& route) {
    return has_path(route, path) && route.method == method;
  });
  if (found != std::end(kRoutes)) return *found;
  const std::string allowed = allowed_methods(path);
  if (allowed.empty()) {
    throw ApiError(404, fmt::format("there is nothing at {}; GET / is a page, GET /openapi.json "
                                    "lists what there is",
                                    model::in_quotes(path)));
  }
  throw ApiError(405, fmt::format("this method is not for {}; use {}", path, allowed));
}

}  // namespace tessera::server
