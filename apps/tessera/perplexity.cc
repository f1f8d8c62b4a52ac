// tessera perplexity: how well a model predicts a text.
#include "tessera/perplexity.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "commands.h"
#include "core/size_text.h"
#include "interrupt.h"
#include "option_checks.h"
#include "parallel_run.h"
#include "perplexity_compare.h"
#include "perplexity_positions.h"
#include "perplexity_run.h"
#include "prompt.h"
#include "run_summary.h"
#include "usage_error.h"

namespace tessera::app {
namespace {

struct PerplexityFlags {
  PerplexitySetting setting;
  std::vector<std::string> compare;
  PositionFiles files;
  std::optional<std::string> file, text;
  std::int64_t max_tokens = 0;
  bool json = false;
};

PerplexityText read_text(const PerplexityFlags& options) {
  if (options.file.has_value() == options.text.has_value()) {
    fail_usage("give the text as either FILE (- is standard input) or --text");
  }
  if (options.text) {
    return {.name = "--text", .text = *options.text, .max_tokens = options.max_tokens};
  }
  return {.name = *options.file == "-" ? "standard input" : *options.file,
          .text = read_text_file(*options.file),
          .max_tokens = options.max_tokens};
}

void print_result(const PerplexityFlags& options, const PerplexityText& text, std::size_t tokens,
                  const ScoredSetting& scored) {
  const PerplexityResult& result = scored.result;
  if (options.json) {
    nlohmann::json object = to_json(scored);
    object["text"] = to_json(text, tokens);
    fmt::print("{}\n", object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print("nll {:.4f} +- {:.4f}   ppl {:.3f} +- {:.3f}\n", result.nll, result.nll_error,
               result.ppl, result.ppl_error);
  }
  std::fflush(stdout);
  fmt::print(stderr,
             "{} of {} tokens scored, {}, {:.1f} s, {:.0f} tokens/s{}; memory: weights {}, peak "
             "RSS {}; {}\n",
             result.tokens, tokens, reading_text(scored), scored.seconds,
             static_cast<double>(result.tokens) / scored.seconds,
             result.cancelled ? ", interrupted" : "", size_text(scored.weight_bytes),
             size_text(peak_rss_bytes()), scored.summary);
}

int run_perplexity(const PerplexityFlags& options) {
  check_position_files(options.files, options.file.value_or("-"));
  if (!options.compare.empty()) {
    if (options.setting.model.run) {
      fail_usage("--compare loads a model for each setting, in one process; leave out --parallel");
    }
    CompareArgs args{.settings = {}, .text = {}, .files = options.files, .json = options.json};
    for (const std::string& setting : options.compare) {
      args.settings.push_back(parse_setting(setting, options.setting));
    }
    check_comparison(args.settings);
    args.text = read_text(options);
    return compare(args);
  }
  check_setting(options.setting);
  const PerplexityText text = read_text(options);
  const Session session = open_session(options.setting.model);
  const std::vector<std::int32_t> ids = encode(session, text);
  const ScoredSetting scored = score(session, options.setting, ids, "scoring");
  print_result(options, text, ids.size(), scored);
  write_positions(options.files, text, {scored});
  return scored.result.cancelled ? kInterruptedStatus : 0;
}

}  // namespace

Command add_perplexity(CLI::App& app) {
  CLI::App* command = app.add_subcommand("perplexity", "Measure how well a model predicts a text");
  const auto options = std::make_shared<PerplexityFlags>();
  command->add_option("FILE", options->file, "The text; - is standard input")->type_name("FILE");
  command->add_option("--text", options->text, "The text itself");
  command
      ->add_option("--max-tokens", options->max_tokens, "Take only the first N tokens of the text")
      ->check(whole_number(2));
  command
      ->add_option(
          "--compare", options->compare,
          "A setting to compare, as weights=int4,sinks=4,window=252; once for each. Keys: " +
              setting_keys())
      ->type_name("SETTING")
      ->allow_extra_args(false);
  command
      ->add_option("--by-position", options->files.paths,
                   "Write nll along the text to FILE.csv or FILE.svg; repeatable")
      ->type_name("FILE")
      ->allow_extra_args(false);
  command
      ->add_option("--bucket", options->files.bucket,
                   "With --by-position: tokens that make one point (about 40 points)")
      ->check(whole_number(1));
  command->add_flag("--json", options->json, "Print one JSON object");
  add_setting_options(*command, options->setting);
  command->footer(
      "The text is cut into chunks of --context tokens, each read from an empty cache. A chunk's\n"
      "first token is not scored (it is the bos token if the tokenizer adds one). With --window "
      "or\n"
      "--attention-sinks the text is one stream. Figures of chunks and of streams are not\n"
      "comparable, and --compare refuses to mix them.\n"
      "nll is in nats per token. Standard errors come from means of 256 tokens. --compare shows\n"
      "each setting's nll minus the first one's, token by token, with the error of that\n"
      "difference. Flags beside --compare hold for all settings.\n"
      "Examples:\n"
      "  tessera perplexity --model pythia-160m wiki.test.txt\n"
      "  tessera perplexity --weights int4 --activations exact --json story.txt | jq .ppl\n"
      "  tessera perplexity --attention-sinks 4 --window 252 novel.txt\n"
      "  tessera perplexity --compare weights=dense --compare weights=int4 wiki.test.txt\n"
      "  tessera perplexity --compare sinks=4,window=252 --compare window=256 \\\n"
      "      --by-position nll.svg --by-position nll.csv novel.txt");
  add_parallel_option(*command, options->setting.model);
  return led_by_rank_0(options->setting.model, [options] { return run_perplexity(*options); });
}

}  // namespace tessera::app
