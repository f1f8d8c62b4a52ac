#include "server/access_log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "model/checkpoint/quote.h"

namespace tessera::server {
namespace {

std::string time_now() {
  return fmt::format(
      "{:%Y-%m-%dT%H:%M:%SZ}",
      fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
}

std::string as_text(const LogEntry& entry) {
  std::string line = fmt::format("{} {} {} {} {} {:.1f} ms", time_now(), entry.client,
                                 model::printable(entry.method), model::printable(entry.path),
                                 entry.status, 1e3 * entry.seconds);
  if (!entry.id.empty()) {
    line += fmt::format(" prompt {} generated {} first {:.1f} ms {}", entry.prompt_tokens,
                        entry.generated_tokens, 1e3 * entry.first_seconds, entry.id);
  }
  if (!entry.body.empty()) line += fmt::format(" {}", model::printable(entry.body));
  return line;
}

std::string as_json(const LogEntry& entry) {
  nlohmann::json json = {{"time", time_now()},     {"client", entry.client},
                         {"method", entry.method}, {"path", entry.path},
                         {"status", entry.status}, {"ms", 1e3 * entry.seconds}};
  if (!entry.id.empty()) {
    json["id"] = entry.id;
    json["prompt_tokens"] = entry.prompt_tokens;
    json["generated_tokens"] = entry.generated_tokens;
    json["first_ms"] = 1e3 * entry.first_seconds;
  }
  if (!entry.body.empty()) json["body"] = entry.body;
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

void write_log(const LogEntry& entry, LogStyle style) {
  if (style == LogStyle::off) return;
  const std::string line = style == LogStyle::json ? as_json(entry) : as_text(entry);
  fmt::print(stderr, "{}\n", line);
}

}  // namespace tessera::server
