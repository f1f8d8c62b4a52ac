// tessera bench: how fast this machine runs single ops and a model, beside what it could.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench_compare.h"
#include "bench_report.h"
#include "bench_suites.h"
#include "commands.h"
#include "core/fail.h"
#include "option_checks.h"
#include "output.h"
#include "report_about.h"
#include "report_file.h"
#include "usage_error.h"

namespace tessera::app {
namespace {

struct BenchFlags {
  std::string suite = "all";
  ModelOptions model;
  bool quick = false, json = false, csv = false, markdown = false;
  std::string html, compare, peers;
  double max_regression = 10;  // percent
};

void check_bench_flags(const BenchFlags& flags) {
  if (flags.json + flags.csv + flags.markdown > 1) {
    fail_usage("--json, --csv and --md each choose the output; give one of them");
  }
  const bool has_model = flags.suite == "decode" || flags.suite == "all";
  if (!has_model && !flags.model.model.empty()) {
    fail_usage("--model {} is for the suites decode and all; leave it out with {}",
               flags.model.model, flags.suite);
  }
  check_report_file("--html", flags.html, ".html");
  if (!flags.peers.empty() && flags.html.empty()) {
    fail_usage("--peers {} adds bars to the page of --html; give --html FILE too", flags.peers);
  }
}

nlohmann::json read_earlier(const std::string& path) {
  try {
    return nlohmann::json::parse(read_report_file(path));
  } catch (const nlohmann::json::exception&) {
    fail(ErrorCode::file, "{} is not what tessera bench --json prints; give such a file", path);
  }
}

BenchResults run_suites(const BenchFlags& flags) {
  Context ctx(
      {.device = find_device(flags.model.device),
       .threads = flags.model.threads,
       .activations = flags.model.activations == "int8" ? Activations::int8 : Activations::exact});
  BenchResults results{.device = to_string(ctx.device()),
                       .device_name = device_name(ctx.device()),
                       .date = today(),
                       .version = version_text(),
                       .threads = ctx.threads(),
                       .quick = flags.quick,
                       .ceilings = profile::measure_ceilings(ctx),
                       .ops = {},
                       .models = {}};
  profile::Bandwidths bandwidths(ctx);
  const SuiteArgs args{
      .ctx = ctx, .results = results, .bandwidths = bandwidths, .quick = flags.quick};
  const auto wanted = [&](std::string_view suite) {
    return flags.suite == suite || flags.suite == "all";
  };
  if (wanted("attention")) bench_attention(args);
  if (wanted("linear")) bench_linear(args);
  if (wanted("norm")) bench_norm(args);
  if (wanted("decode")) bench_decode(args, flags.model);
  return results;
}

int run_bench(const BenchFlags& flags) {
  check_bench_flags(flags);
  // Read before the work, which takes a while.
  std::optional<nlohmann::json> earlier;
  if (!flags.compare.empty()) earlier = read_earlier(flags.compare);
  std::vector<PeerResult> peers;
  if (!flags.peers.empty()) peers = parse_peers(read_report_file(flags.peers), flags.peers);

  const BenchResults results = run_suites(flags);
  std::optional<Comparison> comparison;
  if (earlier) {
    comparison = compare_bench(results, *earlier, flags.compare, flags.max_regression / 100);
  }
  const Comparison* compared = comparison ? &*comparison : nullptr;
  if (!flags.html.empty()) write_report_file(flags.html, bench_html(results, compared, peers));
  if (flags.json) {
    write_out(bench_json(results, compared)
                  .dump(2, ' ', false, nlohmann::json::error_handler_t::replace) +
              "\n");
  } else if (flags.csv) {
    write_out(bench_csv(results));
  } else {
    write_out(flags.markdown ? bench_markdown(results, compared) : bench_text(results, compared));
  }
  return compared != nullptr && compared->regressions() > 0 ? 1 : 0;
}

}  // namespace

Command add_bench(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "bench", "Measure single ops and a model, beside the limits of this machine");
  const auto flags = std::make_shared<BenchFlags>();
  command->add_option("SUITE", flags->suite, "attention, linear, norm, decode or all")
      ->check(one_of({"attention", "linear", "norm", "decode", "all"}))
      ->capture_default_str();
  command->add_flag("--quick", flags->quick, "Fewer shapes and rounds: under a minute");
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->add_flag("--csv", flags->csv, "Print a table for spreadsheets");
  command->add_flag("--md", flags->markdown, "Print tables in Markdown");
  command->add_option("--html", flags->html, "Also write a page with plots")->type_name("FILE");
  command
      ->add_option("--peers", flags->peers,
                   "With --html: speeds of other programs, for bars beside ours (JSON)")
      ->type_name("FILE");
  command
      ->add_option("--compare", flags->compare,
                   "Show ratios to an earlier run, the file that --json printed")
      ->type_name("FILE");
  command
      ->add_option("--max-regression", flags->max_regression,
                   "With --compare: exit with 1 if a test is slower by more than this many percent")
      ->type_name("PERCENT")
      ->check(number(0, 1000))
      ->needs(command->get_option("--compare"))
      ->capture_default_str();
  add_model_options(*command, flags->model);
  command->footer(
      "Both ceilings, reading memory and multiplying, are measured at the start. A floor is bytes\n"
      "over bandwidth, or flops over rate, whichever takes longer. pp512 is a prompt of 512 "
      "tokens,\n"
      "tg128 are 128 tokens one by one, as in llama-bench, through the engine's own steps. Times\n"
      "are medians; ± is half of the range from the slowest to the fastest run.\n"
      "Examples:\n"
      "  tessera bench all --quick\n"
      "  tessera bench decode --model DIR --weights int4 --md\n"
      "  tessera bench linear --json >before.json\n"
      "  tessera bench linear --compare before.json --max-regression 5\n"
      "  tessera bench all --html bench.html --peers peers.json");
  return [flags] { return run_bench(*flags); };
}

}  // namespace tessera::app
