// The results of tessera batch: one JSON object per line, appended as requests end. A run that was
// killed leaves whole lines and at most one torn one, so the next run knows what is done.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "answers.h"
#include "batch_input.h"

namespace tessera::app {

// {"custom_id", "text", "token_ids", "finish_reason", "usage"}, or "choices" where there are
// several; {"custom_id", "error"} if one of them failed.
std::string result_line(const std::string& id, const Answers& answers, const Tokenizer* tokenizer);
std::string error_line(const std::string& id, const std::string& error);
// Of a line without a custom_id of its own; `id` may be empty.
std::string line_error_line(std::int64_t line, const std::string& id, const std::string& error);

class ResultsFile {
 public:
  // Opens the file or makes it, and locks it: one run at a time. Marks what it holds as done, and
  // cuts off a torn last line. Refuses a file that is not an output for this input, and leaves it
  // as it is.
  ResultsFile(std::string path, InputIndex& index);
  ~ResultsFile();
  ResultsFile(const ResultsFile&) = delete;
  ResultsFile& operator=(const ResultsFile&) = delete;

  // Writes a line at once, and now and then makes sure that it is on the disk.
  void append(const std::string& line);
  void sync();

 private:
  void read_earlier(InputIndex& index);
  void mark_done(const LineReader& line, InputIndex& index) const;

  std::string path_;
  int file_ = -1;
  std::chrono::steady_clock::time_point synced_;
};

}  // namespace tessera::app
