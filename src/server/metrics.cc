#include "server/metrics.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>

namespace tessera::server {
namespace {

void write_head(std::string& out, std::string_view name, std::string_view type,
                std::string_view help) {
  fmt::format_to(std::back_inserter(out), "# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
}

template <typename Number>
void write_value(std::string& out, std::string_view name, std::string_view type,
                 std::string_view help, Number value) {
  write_head(out, name, type, help);
  fmt::format_to(std::back_inserter(out), "{} {}\n", name, value);
}

// 0 where the system does not tell.
std::int64_t resident_bytes() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/self/statm", "r"),
                                                             &std::fclose);
  long long all = 0, resident = 0;
  if (!file || std::fscanf(file.get(), "%lld %lld", &all, &resident) != 2) return 0;
  return resident * sysconf(_SC_PAGESIZE);
}

void write_engine(std::string& out, const EngineStats& stats, std::int64_t page_bytes) {
  const auto gauge = [&](std::string_view name, std::string_view help, std::int64_t value) {
    write_value(out, name, "gauge", help, value);
  };
  const auto counter = [&](std::string_view name, std::string_view help, std::int64_t value) {
    write_value(out, name, "counter", help, value);
  };
  gauge("tessera_sequences_running", "Sequences in the engine's steps", stats.running);
  gauge("tessera_sequences_waiting", "Sequences in the queue", stats.waiting);
  gauge("tessera_kv_pages", "Pages of keys and values", stats.pages);
  gauge("tessera_kv_pages_used", "Pages of sequences that run", stats.pages_used);
  gauge("tessera_kv_pages_peak", "The most pages used so far", stats.pages_peak);
  gauge("tessera_kv_page_bytes", "Bytes of a page, all layers", page_bytes);
  counter("tessera_steps_total", "Steps of the engine", stats.steps);
  counter("tessera_prompt_tokens_total", "Tokens of prompts", stats.prompt_tokens);
  counter("tessera_cached_tokens_total", "Tokens of prompts found in the prefix cache",
          stats.cached_tokens);
  counter("tessera_generated_tokens_total", "Tokens drawn", stats.generated_tokens);
  counter("tessera_answers_finished_total", "Answers that came to their end", stats.finished);
  counter("tessera_answers_failed_total", "Answers that ended with an error", stats.failed);
  counter("tessera_answers_cancelled_total", "Answers whose client left", stats.cancelled);
  counter("tessera_preemptions_total", "Sequences that gave up their pages and began again",
          stats.preemptions);
  counter("tessera_drafted_tokens_total", "Tokens guessed ahead", stats.drafted_tokens);
  counter("tessera_accepted_tokens_total", "Guessed tokens that were right", stats.accepted_tokens);
  write_value(out, "tessera_step_seconds_total", "counter", "Time in steps of the engine",
              stats.step_seconds);
}

}  // namespace

void Histogram::observe(double seconds) {
  const auto bound = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
  ++counts_[static_cast<std::size_t>(bound - kBounds.begin())];
  sum_ += seconds;
}

void Histogram::write(std::string& out, std::string_view name, std::string_view help) const {
  write_head(out, name, "histogram", help);
  std::int64_t count = 0;
  for (std::size_t i = 0; i < kBounds.size(); ++i) {
    count += counts_[i];
    fmt::format_to(std::back_inserter(out), "{}_bucket{{le=\"{}\"}} {}\n", name, kBounds[i], count);
  }
  count += counts_.back();
  fmt::format_to(std::back_inserter(out),
                 "{0}_bucket{{le=\"+Inf\"}} {1}\n{0}_sum {2}\n{0}_count {1}\n", name, count, sum_);
}

void Metrics::count_request(std::string_view route, int status, double seconds) {
  ++requests_[{std::string(route), status}];
  request_seconds_.observe(seconds);
}

void Metrics::count_answer(const Event& event) {
  const Usage& usage = event.usage;
  if (usage.generated_tokens == 0) return;
  first_token_seconds_.observe(usage.first_seconds);
  if (usage.generated_tokens > 1) {
    token_seconds_.observe((usage.total_seconds - usage.first_seconds) /
                           static_cast<double>(usage.generated_tokens - 1));
  }
}

std::string Metrics::text(const EngineStats* engine, std::int64_t page_bytes) const {
  std::string out;
  write_head(out, "tessera_requests_total", "counter", "Requests answered");
  for (const auto& [key, count] : requests_) {
    fmt::format_to(std::back_inserter(out),
                   "tessera_requests_total{{route=\"{}\",status=\"{}\"}} {}\n", key.first,
                   key.second, count);
  }
  write_value(out, "tessera_connections", "gauge", "Open connections", connections);
  write_value(out, "tessera_refused_connections_total", "counter",
              "Connections beyond --max-connections", refused_connections);
  request_seconds_.write(out, "tessera_request_seconds", "Time of a request, its answer included");
  first_token_seconds_.write(out, "tessera_first_token_seconds",
                             "From the request to the first token of an answer");
  token_seconds_.write(
      out, "tessera_token_seconds",
      "Time of a further token: one value for each answer, the mean of its tokens");
  write_value(out, "process_resident_memory_bytes", "gauge", "Memory of the process",
              resident_bytes());
  if (engine != nullptr) write_engine(out, *engine, page_bytes);
  return out;
}

}  // namespace tessera::server
