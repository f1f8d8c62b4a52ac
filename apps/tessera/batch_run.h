// Runs the requests of a file through the engine: reads a few ahead, writes results as they end.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "answers.h"
#include "batch_input.h"
#include "batch_request.h"
#include "batch_results.h"
#include "progress.h"
#include "tessera/engine.h"

namespace tessera::app {

struct BatchCounts {
  std::int64_t answered = 0, errors = 0;  // lines written in this run
  std::int64_t skipped = 0;               // that had a result before
  bool has_more = false;                  // lines that came after the run began
  bool interrupted = false;
};

class BatchRun {
 public:
  BatchRun(const Session& session, const EngineOptions& options, const RequestReader& reader,
           const std::string& input, InputIndex& index, ResultsFile& results);

  // Until every line has a result, or a signal ends it (catch_endings). What is running then is
  // dropped: the next run does it again. Errors of the machine end it too.
  BatchCounts run();
  const Engine& engine() const { return engine_; }

 private:
  struct Pending {
    Pending(std::string id_, std::int64_t line_, std::int64_t n, bool logprobs)
        : id(std::move(id_)), line(line_), answers(n, logprobs) {}
    std::string id;
    std::int64_t line;
    Answers answers;  // only the engine's thread touches it until the request has ended
  };

  bool read_next();
  void check_unchanged(const std::optional<RequestLine>& request) const;
  void submit(const RequestLine& request);
  void write_error(const std::string& text);
  void write_ended();
  void show_progress();

  const Tokenizer* tokenizer_;
  const RequestReader& reader_;
  LineReader lines_;
  InputIndex& index_;
  ResultsFile& results_;
  BatchCounts counts_;
  std::int64_t total_, in_flight_ = 0;
  Progress progress_{"batch"};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Pending>> ended_;  // by mutex_

  Engine engine_;  // last: its thread uses what is above
};

}  // namespace tessera::app
