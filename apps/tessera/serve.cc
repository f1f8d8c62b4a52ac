// tessera serve: the options of the server, and the order in which its parts begin and end.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "commands.h"
#include "engine_setup.h"
#include "help_format.h"
#include "model_options.h"
#include "option_checks.h"
#include "output.h"
#include "parallel_run.h"
#include "prompt.h"
#include "run_summary.h"
#include "server/server.h"
#include "server/unix_time.h"
#include "tessera/chat.h"
#include "trained_length.h"
#include "usage_error.h"

namespace tessera::app {
namespace {

constexpr const char* kKeyVariable = "TESSERA_API_KEY";
// Tokens of a sequence that keeps all of them, where --context does not say: models trained for 128
// thousand tokens would leave room for few sequences.
constexpr std::int64_t kDefaultServeContext = 8192;

struct ServeFlags {
  ModelOptions model;
  EngineFlags engine;
  std::string host = "127.0.0.1", alias, template_name, cors;
  std::optional<std::string> api_key, api_key_file;
  std::int64_t port = 8080;
  std::int64_t max_sequences = 32, max_queue = 1024, max_connections = 256;
  std::int64_t drain_seconds = 30, request_seconds = 30, idle_seconds = 75;
  bool log_json = false, log_prompts = false, quiet = false;
};

// A signal came while the model was being loaded.
struct LoadingStopped {};

std::string read_key(const ServeFlags& flags) {
  if (flags.api_key && flags.api_key_file) {
    fail_usage("--api-key and --api-key-file are both given; give one");
  }
  if (flags.api_key) return *flags.api_key;
  if (flags.api_key_file) {
    std::string key = read_text_file(*flags.api_key_file);
    while (!key.empty() && (key.back() == '\n' || key.back() == '\r')) key.pop_back();
    if (key.empty()) fail_usage("--api-key-file {} holds no key", *flags.api_key_file);
    return key;
  }
  const char* variable = std::getenv(kKeyVariable);
  if (variable == nullptr) return {};
  if (*variable == '\0')
    fail_usage("{} is set and holds no key; unset it to need none", kKeyVariable);
  return variable;
}

// A line end would end the header that holds the text; other control characters are no part of one.
void check_header_text(std::string_view option, std::string_view text) {
  const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
  if (std::any_of(text.begin(), text.end(), is_control)) {
    fail_usage("{} has a control character, which no header of HTTP can hold", option);
  }
}

server::ServerOptions server_options(const ServeFlags& flags) {
  using std::chrono::seconds;
  server::ServerOptions options;
  options.host = flags.host;
  options.port = static_cast<std::uint16_t>(flags.port);
  options.api_key = read_key(flags);
  check_header_text("the key", options.api_key);
  options.cors = flags.cors;
  check_header_text("--cors", options.cors);
  options.limits.connections = flags.max_connections;
  options.limits.request = seconds(flags.request_seconds);
  options.limits.idle = seconds(flags.idle_seconds);
  options.log = flags.quiet      ? server::LogStyle::off
                : flags.log_json ? server::LogStyle::json
                                 : server::LogStyle::text;
  options.log_prompts = flags.log_prompts;
  return options;
}

Session load(const ServeFlags& flags, server::Server& server) {
  ModelOptions options = flags.model;
  // A server runs for long: a file that somebody else can write to must not end it.
  options.files = FileAccess::map_if_private;
  return open_session(options, [&](std::int64_t done, std::int64_t total) {
    if (server.signals() > 0) throw LoadingStopped();
    server.set_progress(total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0);
  });
}

EngineOptions serve_engine_options(const ServeFlags& flags, const Session& session,
                                   const Model* draft, const CachePolicy& policy) {
  const ModelConfig& config = session.model->config();
  std::int64_t context = full_context(flags.model, config);
  if (flags.model.context == 0) context = std::min(context, kDefaultServeContext);
  EngineOptions options =
      engine_options(flags.engine, flags.model, draft, policy, context, flags.max_sequences);
  // Requests choose their own policies, so a sequence may be as long as any of them allows.
  options.context = std::max(options.context, context);
  options.max_waiting = flags.max_queue;
  options.max_step_tokens = prompt_step(flags.model, options.max_step_tokens);
  options.warm_up = !session.ctx->device().is_cpu();
  return options;
}

std::optional<ChatTemplate> serve_template(const ServeFlags& flags, const Session& session) {
  if (!flags.template_name.empty()) return chat_template(flags.template_name);
  return folder_chat_template(session.directory);
}

std::string served_name(const ServeFlags& flags, const Session& session) {
  if (!flags.alias.empty()) return flags.alias;
  const auto name = std::filesystem::weakly_canonical(session.directory).filename().string();
  return name.empty() ? "model" : name;
}

// Opens the socket first, so that a port in use is reported before a model is loaded, and /health
// answers during loading.
int run_serve(const ServeFlags& flags) {
  check_cache_options(flags.model);
  check_engine_flags(flags.engine);
  const server::ServerOptions options = server_options(flags);
  server::Server server(options);
  if (!server.is_local() && options.api_key.empty()) {
    fmt::print(stderr,
               "warning: other machines can reach {} without an API key; give --api-key "
               "or --host 127.0.0.1\n",
               server.address());
  }
  std::optional<Session> session;
  try {
    session.emplace(load(flags, server));
  } catch (const LoadingStopped&) {
    return 0;
  }
  const Tokenizer& tokenizer = session->need_tokenizer("serve a folder that has one");
  const std::unique_ptr<Model> draft = load_draft(*session, flags.model, flags.engine);
  const CachePolicy policy = cache_policy(flags.model, session->model->config());
  Engine engine(*session->ctx, *session->model, &tokenizer,
                serve_engine_options(flags, *session, draft.get(), policy));
  note_trained_length(*session, policy, engine.options().context);
  const PromptEncoder prompts(tokenizer, session->model->config(), session->directory);
  std::optional<ChatEncoder> chat;
  if (const auto found = serve_template(flags, *session)) chat.emplace(prompts, *found);

  const CacheFacts kv = facts_of(engine, *session->model, policy);
  const server::ServedModel served{
      .name = served_name(flags, *session),
      .created = server::unix_seconds(),
      .engine = &engine,
      .context = engine.options().context,
      .config = session->model->config(),
      .tokenizer = tokenizer,
      .prompts = prompts,
      .chat = chat ? &*chat : nullptr,
      .policy = policy,
      .page_bytes = kv.bytes / std::max<std::int64_t>(engine.options().pages, 1)};
  server.open(served);
  write_out(fmt::format("tessera serves {} at {} ({})\n", served.name, server.address(),
                        memory_text(*session, kv)));
  flush_out();
  server.wait_for_signal();
  server.drain(engine, std::chrono::seconds(flags.drain_seconds));
  server.stop();
  return 0;
}

void add_listen_options(CLI::App& command, ServeFlags& flags) {
  command.add_option("--host", flags.host, "Address to listen on; 0.0.0.0 is every network")
      ->type_name("ADDRESS")
      ->capture_default_str();
  command.add_option("--port", flags.port, "Port to listen on; 0 picks a free one")
      ->check(whole_number(0, 65535))
      ->capture_default_str();
  command
      .add_option("--api-key", flags.api_key,
                  fmt::format("Clients must send this key; or set {}, which other users of the "
                              "machine cannot see",
                              kKeyVariable))
      ->type_name("KEY");
  command.add_option("--api-key-file", flags.api_key_file, "Read the key from a file")
      ->type_name("FILE");
  command
      .add_option("--cors", flags.cors,
                  "Pages of this origin may use the server, such as https://example.org; * is all")
      ->type_name("ORIGIN");
  command.add_option("--alias", flags.alias, "The model's id for clients; by default its folder")
      ->type_name("NAME");
}

void add_serve_limits(CLI::App& command, ServeFlags& flags) {
  const auto number = [&](const char* name, std::int64_t& value, const char* help,
                          std::int64_t least, std::int64_t most) {
    command.add_option(name, value, help)->check(whole_number(least, most))->capture_default_str();
  };
  number("--max-sequences", flags.max_sequences, "Answers that are written at the same time", 1,
         1024);
  number("--max-queue", flags.max_queue, "Requests that may wait; more get status 429", 1, 1 << 20);
  number("--max-connections", flags.max_connections, "Connections at the same time", 1, 1 << 16);
  number("--request-seconds", flags.request_seconds, "How long a client may take to send a request",
         1, 3600);
  number("--idle-seconds", flags.idle_seconds, "How long a connection may wait between requests", 1,
         86400);
  number("--drain-seconds", flags.drain_seconds,
         "How long answers in progress may take to finish after SIGTERM", 0, 86400);
}

}  // namespace

Command add_serve(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("serve", "Answer OpenAI requests over HTTP, with a web page");
  const auto flags = std::make_shared<ServeFlags>();
  add_listen_options(*command, *flags);
  std::vector<std::string> names;
  names.reserve(chat_templates().size());
  for (const ChatTemplate& chat : chat_templates()) names.push_back(chat.name);
  command
      ->add_option("--chat-template", flags->template_name,
                   "Chat template to use instead of the one in the model's folder")
      ->type_name("NAME")
      ->check(one_of(names));
  under_heading(*command, "Limits", [&] { add_serve_limits(*command, *flags); });
  under_heading(*command, "Log", [&] {
    command->add_flag("--log-json", flags->log_json, "One JSON object for each request");
    command->add_flag("--log-prompts", flags->log_prompts,
                      "Also log the prompts that clients send");
    command->add_flag("--quiet", flags->quiet, "Do not log requests");
  });
  under_heading(*command, "Speed", [&] { add_engine_flags(*command, flags->engine); });
  add_cache_options(*command, flags->model);
  add_model_options(*command, flags->model);
  command->footer(
      "Open the address in a browser, or point an OpenAI client at it (docs/SERVING.md).\n\n"
      "Examples:\n"
      "  tessera serve\n"
      "  tessera serve --model qwen2.5-0.5b-instruct --weights int4 --port 8000\n"
      "  tessera serve --host 0.0.0.0 --api-key-file key.txt --log-json\n"
      "  curl localhost:8080/v1/completions -H 'Content-Type: application/json' "
      "-d '{\"prompt\": \"Once upon a time\"}'");
  add_parallel_option(*command, flags->model);
  return led_by_rank_0(flags->model, [flags] { return run_serve(*flags); });
}

}  // namespace tessera::app
