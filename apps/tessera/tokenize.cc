// tessera tokenize: a text as a model sees it, and back.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "chat_template_option.h"
#include "commands.h"
#include "model/checkpoint/input_file.h"
#include "tessera/tokenizer.h"
#include "tokenize_chat.h"
#include "usage_error.h"

namespace tessera::app {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::int64_t kMaxChatFile = 64 << 20;  // bytes

struct TokenizeFlags {
  std::string tokenizer, model, text, ids, chat, template_name;
  bool has_text = false, decode = false, add_special = false, skip_special = false, json = false;
  bool no_parse_special = false;
};

std::string read_standard_input(std::string_view what) {
  if (isatty(STDIN_FILENO) != 0) {
    fmt::print(stderr, "reading {} from standard input; Ctrl-D ends it\n", what);
  }
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

// Separated by commas or white space, with or without the brackets of a JSON list.
Ids parse_given_ids(std::string_view text) {
  constexpr std::string_view kSeparators = ", \t\r\n[]";
  Ids ids;
  for (std::size_t at = text.find_first_not_of(kSeparators); at != std::string_view::npos;
       at = text.find_first_not_of(kSeparators, at)) {
    const std::size_t end = std::min(text.find_first_of(kSeparators, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    std::int32_t id = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || stop != word.data() + word.size()) {
      fail_usage(
          "--decode: '{}' is not a token id; give whole numbers separated by commas, such as 1,2,3",
          word.substr(0, 40));
    }
    ids.push_back(id);
    at = end;
  }
  return ids;
}

nlohmann::json as_json(const Tokenizer& tokenizer, const Ids& ids) {
  nlohmann::json tokens = nlohmann::json::array();
  for (const std::int32_t id : ids) tokens.push_back(tokenizer.token(id));
  return {{"ids", ids}, {"tokens", std::move(tokens)}};
}

int decode_ids(const Tokenizer& tokenizer, const TokenizeFlags& options) {
  const Ids ids =
      parse_given_ids(options.ids.empty() ? read_standard_input("token ids") : options.ids);
  const std::string text = tokenizer.decode(ids, options.skip_special);
  if (options.json) {
    nlohmann::json json = as_json(tokenizer, ids);
    json["text"] = text;
    fmt::print("{}\n", json.dump());
  } else {
    fmt::print("{}\n", text);
  }
  return 0;
}

void print_ids(const Tokenizer& tokenizer, const Ids& ids) {
  for (const std::int32_t id : ids) {
    fmt::print("{:>7}  {}{}\n", id, nlohmann::json(tokenizer.token(id)).dump(),
               tokenizer.is_special(id) ? "  special" : "");
  }
  fmt::print("{} token{}: {}\n", ids.size(), ids.size() == 1 ? "" : "s", fmt::join(ids, ","));
}

int encode_text(const Tokenizer& tokenizer, const TokenizeFlags& options) {
  const std::string text = options.has_text ? options.text : read_standard_input("a text");
  const Ids ids = tokenizer.encode(
      text, {.add_special = options.add_special, .parse_special = !options.no_parse_special});
  if (options.json) {
    fmt::print("{}\n", as_json(tokenizer, ids).dump());
  } else {
    print_ids(tokenizer, ids);
  }
  return 0;
}

int encode_chat(const Tokenizer& tokenizer, const TokenizeFlags& options) {
  const bool piped = options.chat == "-";
  const std::string json = piped ? read_standard_input("messages as JSON")
                                 : model::read_small_file(options.chat, kMaxChatFile);
  const std::filesystem::path directory =
      options.model.empty() ? std::filesystem::path(options.tokenizer).parent_path()
                            : std::filesystem::path(options.model);
  const ChatTokens chat = tokenize_chat(tokenizer, directory, options.template_name, json,
                                        piped ? "standard input" : options.chat);
  if (options.json) {
    nlohmann::json result = as_json(tokenizer, chat.ids);
    result["text"] = chat.text;
    fmt::print("{}\n", result.dump());
  } else {
    fmt::print("{}\n\n", chat.text);
    print_ids(tokenizer, chat.ids);
  }
  return 0;
}

int run_tokenize(const TokenizeFlags& options) {
  if (options.tokenizer.empty() == options.model.empty()) {
    fail_usage("give either --model DIR or --tokenizer FILE");
  }
  // Wrong ids on the command line are refused before a file is opened.
  if (options.decode) parse_given_ids(options.ids);
  const Tokenizer tokenizer =
      Tokenizer::from_file(options.tokenizer.empty() ? options.model : options.tokenizer);
  if (options.decode) return decode_ids(tokenizer, options);
  return options.chat.empty() ? encode_text(tokenizer, options) : encode_chat(tokenizer, options);
}

}  // namespace

Command add_tokenize(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("tokenize", "Show the tokens of a text, or the text of tokens");
  const auto options = std::make_shared<TokenizeFlags>();
  command->add_option("--tokenizer", options->tokenizer, "A tokenizer.json")->type_name("FILE");
  command->add_option("--model", options->model, "A model's folder, with its tokenizer.json")
      ->type_name("DIR");
  CLI::Option* text =
      command->add_option("--text", options->text, "The text; without it, standard input");
  CLI::Option* special =
      command->add_flag("--add-special", options->add_special,
                        "Add the special tokens that the model expects around a text, such as <s>");
  CLI::Option* as_text = command->add_flag(
      "--no-parse-special", options->no_parse_special,
      "Treat special tokens in the text, such as <|im_end|>, as text, like the words of a user "
      "in a chat; without this flag they become tokens, as in a prompt");
  CLI::Option* ids = command->add_option("--decode", options->ids,
                                         "Turn token ids into text; without IDS, those on "
                                         "standard input");
  ids->type_name("IDS")->expected(0, 1)->excludes(text)->excludes(special)->excludes(as_text);
  command
      ->add_flag("--skip-special", options->skip_special, "With --decode: leave out special tokens")
      ->needs(ids);
  CLI::Option* chat = command->add_option(
      "--chat", options->chat,
      "Messages as JSON, - for standard input: a list of {role, content}, or an object with "
      "\"messages\" and more variables; prints the text from the chat template, and "
      "its tokens");
  chat->type_name("FILE")->excludes(text)->excludes(special)->excludes(as_text)->excludes(ids);
  add_chat_template_option(*command, options->template_name);
  command->add_flag("--json", options->json, "Print one JSON object");
  command->footer(
      "Examples:\n"
      "  tessera tokenize --model DIR --text 'Once upon a time'\n"
      "  tessera tokenize --model DIR --no-parse-special --text 'hi<|im_end|>'\n"
      "  tessera tokenize --tokenizer tokenizer.json --json < story.txt\n"
      "  tessera tokenize --model DIR --chat messages.json\n"
      "  tessera tokenize --model DIR --decode 1,9038,2501,263,931");
  return [options, text, ids] {
    options->has_text = text->count() > 0;
    options->decode = ids->count() > 0;
    return run_tokenize(*options);
  };
}

}  // namespace tessera::app
