// tessera verify: is this model computed right, on this machine?
#include "verify.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "commands.h"
#include "model_options.h"
#include "parallel_run.h"
#include "progress.h"

namespace tessera::app {
namespace {

using reference::Array;

struct VerifyFlags {
  ModelOptions model;
  std::string golden;
  bool json = false;
};

std::unique_ptr<Model> load_with_progress(Context& ctx, const ModelOptions& model,
                                          LoadOptions options) {
  Progress progress("loading");
  options.progress = progress.callback();
  return load_part_or_whole(ctx, model, options);
}

// ---- the report ---------------------------------------------------------------------------------

const char* verdict(bool ok) { return ok ? "ok" : "MISS"; }

void print_check(const VerifyCheck& check) {
  std::size_t width = 12;
  for (const VerifyRow& row : check.rows) width = std::max(width, row.what.size());
  const bool numbers = std::any_of(check.rows.begin(), check.rows.end(),
                                   [](const VerifyRow& row) { return row.bound > 0; });
  fmt::print("\n{}\n", check.name);
  if (numbers) {
    fmt::print("  {:<{}}  {:>9}  {:>9}  {:>9}  verdict\n", "", width, "max abs", "max rel",
               "bound");
  }
  for (const VerifyRow& row : check.rows) {
    if (row.bound > 0 && row.text.empty()) {
      fmt::print("  {:<{}}  {:>9.2e}  {:>9.2e}  {:>9.1e}  {}\n", row.what, width, row.max_abs,
                 row.max_rel, row.bound, verdict(row.ok));
    } else {
      fmt::print("  {:<{}}  {}  {}\n", row.what, width, row.text, verdict(row.ok));
    }
  }
}

// JSON has no infinity.
nlohmann::json number(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
}

nlohmann::json verify_json(const VerifyCheck& check) {
  nlohmann::json rows = nlohmann::json::array();
  for (const VerifyRow& row : check.rows) {
    nlohmann::json one{{"what", row.what}, {"ok", row.ok}};
    if (row.bound > 0) {
      one.update({{"max_abs", number(row.max_abs)},
                  {"max_rel", number(row.max_rel)},
                  {"bound", row.bound}});
    }
    if (!row.text.empty()) one["text"] = row.text;
    rows.push_back(std::move(one));
  }
  return {{"name", check.name}, {"ok", check.ok()}, {"verdict", check.verdict}, {"rows", rows}};
}

void print_trace(const std::vector<TraceEntry>& trace) {
  std::size_t op = 2, kernel = 6;  // widths of the headings
  for (const TraceEntry& entry : trace) {
    op = std::max(op, entry.op.size());
    kernel = std::max(kernel, entry.kernel.size());
  }
  fmt::print("\ncall trace: a prompt of {} tokens and one more token\n", kPromptTokens);
  fmt::print("  {:<{}}  {:<{}}  {:>5}  {:>9}  shapes\n", "op", op, "kernel", kernel, "calls", "ms");
  for (const TraceEntry& entry : trace) {
    fmt::print("  {:<{}}  {:<{}}  {:>5}  {:>9.3f}  {}\n", entry.op, op, entry.kernel, kernel,
               entry.calls, 1e3 * entry.seconds, entry.shapes);
  }
}

nlohmann::json verify_json(const std::vector<TraceEntry>& trace) {
  nlohmann::json list = nlohmann::json::array();
  for (const TraceEntry& entry : trace) {
    list.push_back({{"op", entry.op},
                    {"kernel", entry.kernel},
                    {"shapes", entry.shapes},
                    {"calls", entry.calls},
                    {"seconds", entry.seconds},
                    {"bytes", entry.bytes},
                    {"flops", entry.flops}});
  }
  return list;
}

int report(const std::vector<VerifyCheck>& checks, const std::vector<TraceEntry>& trace,
           const VerifySubject& subject, const VerifyFlags& options, double seconds) {
  const auto misses = std::count_if(checks.begin(), checks.end(),
                                    [](const VerifyCheck& check) { return !check.ok(); });
  const std::vector<std::string> notes =
      load_notes(subject.model, subject.directory, options.model);
  if (options.json) {
    nlohmann::json list = nlohmann::json::array();
    for (const VerifyCheck& check : checks) list.push_back(verify_json(check));
    fmt::print("{}\n", nlohmann::json{{"model", subject.directory.string()},
                                      {"golden", options.golden},
                                      {"architecture", subject.model.config().architecture},
                                      {"device", to_string(subject.ctx.device())},
                                      {"dtype", name(subject.model.dtype())},
                                      {"activations", options.model.activations},
                                      {"bound", subject.bound},
                                      {"checks", list},
                                      {"trace", verify_json(trace)},
                                      {"notes", notes},
                                      {"seconds", seconds},
                                      {"ok", misses == 0}}
                           .dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return misses == 0 ? 0 : 1;
  }
  fmt::print("{} ({}) on {}, {}, {} activations, against {}\n", subject.directory.string(),
             subject.model.config().architecture, to_string(subject.ctx.device()),
             name(subject.model.dtype()), options.model.activations,
             options.golden.empty() ? "Tessera's float64 reference" : options.golden);
  for (const std::string& note : notes) fmt::print("note: {}\n", note);
  for (const VerifyCheck& check : checks) print_check(check);
  print_trace(trace);
  fmt::print("\n");
  for (const VerifyCheck& check : checks) {
    fmt::print("{:<22} {:<4}  {}\n", check.name, verdict(check.ok()), check.verdict);
  }
  fmt::print(
      "{} in {:.1f} s\n",
      misses == 0 ? "all checks hold" : fmt::format("{} of {} checks miss", misses, checks.size()),
      seconds);
  return misses == 0 ? 0 : 1;
}

int run_verify(const VerifyFlags& options) {
  const auto start = std::chrono::steady_clock::now();
  const LoadOptions load = load_options(options.model);
  const std::filesystem::path directory = model_path(options.model);
  const bool int8 = options.model.activations == "int8";
  Context ctx(context_options(options.model));
  const std::unique_ptr<Model> model = load_with_progress(ctx, options.model, load);
  const VerifySubject subject{.ctx = ctx,
                              .model = *model,
                              .directory = directory,
                              .options = load,
                              .bound = level_bound(model->dtype(), int8),
                              .exact_tokens = model->dtype() == DType::f32 && !int8};
  std::vector<VerifyCheck> checks;
  if (!options.golden.empty()) {
    checks = verify_golden(subject, options.golden);
  } else {
    checks.push_back(verify_kernels(subject));
    for (VerifyCheck& check : verify_by_reference(subject)) checks.push_back(std::move(check));
  }
  const std::vector<TraceEntry> trace = call_trace(subject);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return report(checks, trace, subject, options, seconds.count());
}

}  // namespace

bool VerifyCheck::ok() const {
  return std::all_of(rows.begin(), rows.end(), [](const VerifyRow& row) { return row.ok; });
}

double level_bound(DType dtype, bool int8_activations) {
  const double bound = dtype == DType::f32 ? 1e-4 : dtype == DType::f16 ? 2e-2 : 1.5e-1;
  return int8_activations ? std::max(bound, 2e-1) : bound;
}

VerifyRow level_row(std::string what, const Array& actual, const Array& expected, double bound) {
  const reference::Difference difference = reference::compare(actual, expected);
  return {.what = std::move(what),
          .max_abs = difference.max_abs,
          .max_rel = difference.max_rel,
          .bound = bound,
          .ok = difference.max_rel < bound};
}

std::string level_name(std::int64_t level, std::int64_t layers) {
  if (level == 0) return "embedding";
  return level == layers ? "final norm" : fmt::format("layer {}", level);
}

VerifyCheck token_check(const std::vector<std::int32_t>& actual,
                        const std::vector<std::int32_t>& expected, const Array& logits,
                        const VerifySubject& subject) {
  std::int64_t same = 0, near = 0;
  std::string first;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (actual[i] == expected[i]) {
      ++same;
      continue;
    }
    const auto row = static_cast<std::int64_t>(i);
    double largest = 0;
    for (std::int64_t n = 0; n < logits.size(1); ++n) {
      largest = std::max(largest, std::abs(logits.at(row, n)));
    }
    const double gap = std::abs(logits.at(row, actual[i]) - logits.at(row, expected[i]));
    if (!subject.exact_tokens && gap <= subject.bound * largest) {
      ++near;
    } else if (first.empty()) {
      first = fmt::format("; token {} is {}, expected {}", i, actual[i], expected[i]);
    }
  }
  const auto count = static_cast<std::int64_t>(expected.size());
  std::string text = fmt::format("{} of {} identical", same, count);
  if (near > 0) text += fmt::format(", {} within the bound", near);
  text += first;
  return {.name = "greedy tokens",
          .verdict = text,
          .rows = {{.what = "tokens", .text = text, .ok = same + near == count}}};
}

Command add_verify(CLI::App& app) {
  CLI::App* command = app.add_subcommand("verify",
                                         "Check a model against float64: kernels, hidden "
                                         "states, tokens, fused calls, time per token");
  const auto options = std::make_shared<VerifyFlags>();
  options->model.activations = "exact";  // generation rounds them to 8 bits; a check should not
  add_model_options(*command, options->model);
  command
      ->add_option("--golden", options->golden,
                   "Compare with another program's results (input_ids, hidden_states.N, logits, "
                   "generated_ids) instead of Tessera's float64 reference")
      ->type_name("FILE");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->footer(fmt::format(
      "max rel is max|a - b| / max|b| over a level, where b is expected. It must be below {:g} in "
      "f32, {:g} in f16, {:g} in bf16, and {:g} with int8 activations. In f32, greedy tokens must "
      "be identical; otherwise a token that differs must be that near to the expected one. A model "
      "on a GPU, or in less than f32, is compared with the CPU in f32 as well. The exit status is "
      "0 if every check holds, else 1.\n\n"
      "Examples:\n"
      "  tessera verify                              five checks against float64\n"
      "  tessera verify --model DIR --golden FILE    against another program\n"
      "  tessera verify --model DIR --weights nvfp4 --json",
      level_bound(DType::f32, false), level_bound(DType::f16, false),
      level_bound(DType::bf16, false), level_bound(DType::f32, true)));
  add_parallel_option(*command, options->model);
  return led_by_rank_0(options->model, [options] { return run_verify(*options); });
}

}  // namespace tessera::app
