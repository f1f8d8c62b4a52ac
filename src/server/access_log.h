// One line for each request on standard error. Neither keys nor, unless asked, prompts are in it.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::server {

struct LogEntry {
  std::string client, method, path;
  int status = 0;
  double seconds = 0;
  std::string id{};  // of the answer; empty: the request has none
  std::int64_t prompt_tokens = 0, generated_tokens = 0;
  double first_seconds = 0;
  std::string body{};  // only where prompts are logged
};

enum class LogStyle { off, text, json };

void write_log(const LogEntry& entry, LogStyle style);

}  // namespace tessera::server
