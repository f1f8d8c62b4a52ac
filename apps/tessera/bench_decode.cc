// A model end to end, through the engine's own steps: prompts (pp512) and tokens one by one
// (tg128), as llama-bench counts them.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "bench_suites.h"
#include "profile/engine_run.h"
#include "report_about.h"

namespace tessera::app {
namespace {

using profile::EngineRun;
using profile::PhaseRun;

void add_speed(const SuiteArgs& args, const Session& session, const std::string& test,
               const std::vector<EngineRun>& runs, PhaseRun EngineRun::*phase) {
  std::vector<double> speeds;
  speeds.reserve(runs.size());
  for (const EngineRun& run : runs) {
    speeds.push_back(static_cast<double>((run.*phase).tokens) / (run.*phase).seconds);
  }
  std::sort(speeds.begin(), speeds.end());
  args.results.models.push_back({.model = session.directory.filename().string(),
                                 .weights = weight_formats_of(*session.model),
                                 .test = test,
                                 .bytes = session.model->weight_bytes(),
                                 .parameters = parameters_of(*session.model),
                                 .tokens_per_second = speeds[speeds.size() / 2],
                                 .slowest = speeds.front(),
                                 .fastest = speeds.back()});
}

}  // namespace

void bench_decode(const SuiteArgs& args, const ModelOptions& options) {
  constexpr std::int64_t kPrompt = 512, kGenerated = 128;
  const Session session = open_session(options);
  const int repeats = args.quick ? 3 : 7;
  const std::vector<EngineRun> prompts = profile::repeat_engine(
      *session.ctx, *session.model, {.prompt_tokens = kPrompt, .decode_tokens = 0}, repeats);
  add_speed(args, session, fmt::format("pp{}", kPrompt), prompts, &EngineRun::prefill);
  const std::vector<EngineRun> tokens = profile::repeat_engine(
      *session.ctx, *session.model, {.prompt_tokens = 1, .decode_tokens = kGenerated}, repeats);
  add_speed(args, session, fmt::format("tg{}", kGenerated), tokens, &EngineRun::decode);
}

}  // namespace tessera::app
