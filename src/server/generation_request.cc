#include "server/generation_request.h"

#include <algorithm>
#include <charconv>
#include <random>
#include <utility>

#include "model/checkpoint/json.h"
#include "model/checkpoint/quote.h"
#include "ops/sampling_table.h"
#include "server/api_error.h"
#include "server/limits.h"
#include "server/request_fields.h"

namespace tessera::server {
namespace {

using Json = nlohmann::json;

// As in the OpenAI API. A chat goes on until the model ends it.
constexpr std::int64_t kDefaultCompletionTokens = 16;

std::uint64_t random_seed() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32) | device();
}

void read_sampling(const Json& body, SamplingOptions& sampling) {
  for (const SamplingOption& option : sampling_table()) {
    const std::string name(option.name);
    const Json* value = member(body, name.c_str());
    if (value == nullptr) continue;
    if (option.count) {
      sampling.*option.count = value->get<std::int64_t>();
    } else {
      sampling.*option.number = value->get<double>();
    }
    if (!option.accepts(option.value(sampling))) {
      refuse(name, "{} is {}; it must be {}", name, model::describe(*value), option.accepted);
    }
  }
  const Json* seed = member(body, "seed");
  sampling.seed =
      seed != nullptr ? static_cast<std::uint64_t>(seed->get<std::int64_t>()) : random_seed();
}

void read_biases(const Json& body, std::int64_t vocab, SamplingOptions& sampling) {
  const Json* biases = member(body, "logit_bias");
  if (biases == nullptr) return;
  for (const auto& [key, value] : biases->items()) {
    std::int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    const bool is_id = error == std::errc() && end == key.data() + key.size();
    if (!is_id || id < 0 || id >= vocab) {
      refuse("logit_bias", "logit_bias names {}; it must be a token id from 0 to {}",
             model::in_quotes(key), vocab - 1);
    }
    sampling.logit_bias.emplace_back(id, value.get<float>());
  }
}

std::vector<std::string> read_stops(const Json& body) {
  const Json* stop = member(body, "stop");
  if (stop == nullptr) return {};
  if (stop->is_string()) return {stop->get<std::string>()};
  return stop->get<std::vector<std::string>>();
}

// The default is the server's; either field alone says the whole policy.
CachePolicy read_policy(const Json& body, const ServedModel& served) {
  const Json* sinks = member(body, "attention_sinks");
  const Json* window = member(body, "window");
  if (sinks == nullptr && window == nullptr) return served.policy;
  const std::int64_t first = sinks != nullptr ? sinks->get<std::int64_t>() : 0;
  const std::int64_t trained = served.config.max_positions;
  if (window == nullptr) {
    if (first == 0) return CachePolicy::full();
    if (first >= trained) {
      refuse_together("attention_sinks",
                      "attention_sinks is {}, which leaves no room for recent tokens: the model "
                      "was trained for {} tokens; use fewer, or give window",
                      first, trained);
    }
    return CachePolicy::sinks(first, trained - first);
  }
  const auto last = window->get<std::int64_t>();
  return first > 0 ? CachePolicy::sinks(first, last) : CachePolicy::last(last);
}

std::int64_t read_max_tokens(const Json& body, bool chat) {
  const Json* newer = member(body, "max_completion_tokens");
  const Json* older = member(body, "max_tokens");
  if (newer != nullptr && older != nullptr) {
    refuse_together("max_tokens", "max_tokens and max_completion_tokens are both given; give one");
  }
  const Json* given = newer != nullptr ? newer : older;
  if (given != nullptr) return given->get<std::int64_t>();
  return chat ? kMostTokens : kDefaultCompletionTokens;
}

std::int64_t read_logprobs(const Json& body, bool chat) {
  const Json* logprobs = member(body, "logprobs");
  if (!chat) return logprobs != nullptr ? logprobs->get<std::int64_t>() : -1;
  const Json* top = member(body, "top_logprobs");
  if (logprobs == nullptr || !logprobs->get<bool>()) {
    if (top != nullptr) refuse_together("top_logprobs", "top_logprobs needs \"logprobs\": true");
    return -1;
  }
  return top != nullptr ? top->get<std::int64_t>() : 0;
}

GenerateOptions read_options(const Json& body, bool chat, const ServedModel& served) {
  GenerateOptions options;
  options.max_tokens = read_max_tokens(body, chat);
  options.ignore_eos = flag(body, "ignore_eos");
  options.stop = read_stops(body);
  options.top_logprobs = read_logprobs(body, chat);
  read_sampling(body, options.sampling);
  read_biases(body, served.config.vocab, options.sampling);
  return options;
}

// ---- prompts -----------------------------------------------------------------------------------

struct Prompt {
  std::vector<std::int32_t> ids;
  std::string text;  // as given; of ids, as they decode
};

Prompt read_prompt(const Json& value, const ServedModel& served) {
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    return {served.prompts.encode(text), text};
  }
  auto ids = value.get<std::vector<std::int32_t>>();
  const std::int64_t vocab = std::min(served.config.vocab, served.tokenizer.vocab_size());
  for (const std::int32_t id : ids) {
    if (id >= vocab) {
      refuse("prompt", "prompt has the token id {}; ids are from 0 to {}", id, vocab - 1);
    }
  }
  std::string text = served.tokenizer.decode(ids);
  return {std::move(ids), std::move(text)};
}

std::vector<Prompt> read_prompts(const Json& value, const ServedModel& served) {
  const bool several = value.is_array() && !value.front().is_number();
  std::vector<Prompt> prompts;
  if (!several) {
    prompts.push_back(read_prompt(value, served));
    return prompts;
  }
  prompts.reserve(value.size());
  for (const Json& item : value) prompts.push_back(read_prompt(item, served));
  return prompts;
}

std::string read_content(const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  for (const Json& part : content) text += part["text"].get_ref<const std::string&>();
  return text;
}

std::vector<ChatMessage> read_messages(const Json& messages) {
  std::vector<ChatMessage> list;
  list.reserve(messages.size());
  for (const Json& message : messages) {
    for (const auto& [name, value] : message.items()) {
      if (name != "role" && name != "content" && !value.is_null()) {
        refuse("messages", "messages[{}] has {}, which is not supported; give role and content",
               list.size(), model::in_quotes(name));
      }
    }
    auto role = message["role"].get<std::string>();
    if (role == "developer") role = "system";  // the newer name of the same thing
    list.push_back({std::move(role), read_content(message["content"])});
  }
  return list;
}

Prompt read_chat(const Json& body, const ServedModel& served) {
  if (served.chat == nullptr) {
    refuse_together("messages",
                    "the model has no chat template, so it takes no messages; use "
                    "/v1/completions, or start the server with --chat-template");
  }
  ChatOptions options;
  if (const Json* variables = member(body, "chat_template_kwargs")) {
    options.variables = variables->dump();
  }
  return {served.chat->encode(read_messages(body["messages"]), options), {}};
}

// ---- what fields say together ------------------------------------------------------------------

void check_model_name(const Json& body, const ServedModel& served) {
  const Json* name = member(body, "model");
  if (name == nullptr || *name == served.name) return;
  throw no_such_model(name->get_ref<const std::string&>(), served.name);
}

// Tokens and log-probabilities that an answer in one piece holds at most.
std::int64_t held_entries(const GenerationRequest& request, const ServedModel& served) {
  const Request& first = request.requests.front();
  const bool is_full = first.policy.kind == CachePolicy::Kind::full;
  const std::int64_t tokens =
      is_full ? std::min(first.options.max_tokens, served.context) : first.options.max_tokens;
  return request.choices() * tokens * (first.options.top_logprobs + 2);
}

// The code is the one by which clients of the API know that a conversation has to be shortened.
void check_lengths(const GenerationRequest& request, const ServedModel& served) {
  for (const Request& one : request.requests) {
    const std::int64_t tokens = std::ssize(one.prompt_ids);
    if (one.policy.kind != CachePolicy::Kind::full || tokens <= served.context) continue;
    throw ApiError(400,
                   fmt::format("the prompt has {} tokens, but a sequence here holds at most {}: "
                               "shorten it, or use attention_sinks or window",
                               tokens, served.context),
                   request.chat ? "messages" : "prompt", "context_length_exceeded");
  }
}

void check_together(const Json& body, const GenerationRequest& request, const ServedModel& served) {
  if (!request.stream && member(body, "stream_options") != nullptr) {
    refuse_together("stream_options", "stream_options needs \"stream\": true");
  }
  if (served.engine != nullptr && request.n() > served.engine->options().max_sequences) {
    refuse("n", "n is {}; it must be from 1 to {}, the sequences that run at the same time here",
           request.n(), served.engine->options().max_sequences);
  }
  if (request.choices() > kMostChoices) {
    refuse_together("n", "prompt and n ask for {} answers; at most {} are written at once",
                    request.choices(), kMostChoices);
  }
  if (!request.echoes.empty() && request.logprobs) {
    refuse("echo",
           "echo with logprobs is not supported: prompts have no log-probabilities here; leave one "
           "of them out");
  }
  if (!request.stream && held_entries(request, served) > kMostHeldEntries) {
    refuse_together("max_tokens",
                    "max_tokens, n and logprobs ask for too much for an answer in one piece; ask "
                    "for less, or stream it");
  }
}

}  // namespace

GenerationRequest read_generation(std::string_view text, bool chat, const ServedModel& served) {
  const Json body = model::parse_json(text, "the body");
  check_fields(body, chat ? Body::chat : Body::completion);
  check_model_name(body, served);

  GenerationRequest request;
  request.chat = chat;
  request.stream = flag(body, "stream");
  if (const Json* options = member(body, "stream_options")) {
    request.include_usage = flag(*options, "include_usage");
  }
  Request shared;
  shared.options = read_options(body, chat, served);
  shared.policy = read_policy(body, served);
  shared.use_prefix_cache = flag(body, "cache_prompt", true);
  if (const Json* n = member(body, "n")) shared.n = n->get<std::int64_t>();
  request.logprobs = shared.options.top_logprobs >= 0;
  if (chat && served.chat != nullptr && served.chat->turn_end() >= 0) {
    shared.options.stop_ids = {served.chat->turn_end()};
  }

  std::vector<Prompt> prompts;
  if (chat) {
    prompts.push_back(read_chat(body, served));
  } else {
    prompts = read_prompts(body["prompt"], served);
  }
  const bool echo = flag(body, "echo");
  for (Prompt& prompt : prompts) {
    request.requests.push_back(shared);
    request.requests.back().prompt_ids = std::move(prompt.ids);
    if (echo) request.echoes.push_back(std::move(prompt.text));
  }
  check_together(body, request, served);
  check_lengths(request, served);
  return request;
}

}  // namespace tessera::server
