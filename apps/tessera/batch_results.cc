#include "batch_results.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/fail.h"
#include "model/checkpoint/json.h"
#include "model/checkpoint/quote.h"

namespace tessera::app {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::string_view kLineBegin = R"({"custom_id":)";  // of every line
constexpr auto kSyncEvery = std::chrono::seconds(1);

std::string line_of(const OrderedJson& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void add_answer(OrderedJson& json, const GenerateResult& result, bool logprobs,
                const Tokenizer* tokenizer) {
  json["text"] = result.text;
  json["token_ids"] = result.ids;
  json["finish_reason"] = name(result.reason);
  if (logprobs) json["logprobs"] = OrderedJson(logprobs_json(result, tokenizer));
}

}  // namespace

std::string result_line(const std::string& id, const Answers& answers, const Tokenizer* tokenizer) {
  if (answers.error()) return error_line(id, answers.error()->what());
  OrderedJson json = {{"custom_id", id}};
  const auto& results = answers.results();
  if (results.size() == 1) {
    add_answer(json, results[0], answers.has_logprobs(), tokenizer);
  } else {
    for (const GenerateResult& result : results) {
      OrderedJson choice = {{"index", json["choices"].size()}};
      add_answer(choice, result, answers.has_logprobs(), tokenizer);
      json["choices"].push_back(std::move(choice));
    }
  }
  json["usage"] = {{"prompt_tokens", answers.prompt_tokens()},
                   {"generated_tokens", answers.generated_tokens()}};
  return line_of(json);
}

std::string error_line(const std::string& id, const std::string& error) {
  return line_of({{"custom_id", id}, {"error", error}});
}

std::string line_error_line(std::int64_t line, const std::string& id, const std::string& error) {
  OrderedJson json = {{"custom_id", nullptr}, {"line", line}, {"error", error}};
  if (!id.empty()) json["custom_id"] = id;
  return line_of(json);
}

ResultsFile::ResultsFile(std::string path, InputIndex& index)
    : path_(std::move(path)), synced_(std::chrono::steady_clock::now()) {
  file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file_ < 0) fail(ErrorCode::file, "cannot write {}: {}", path_, std::strerror(errno));
  try {
    struct stat status {};
    if (::fstat(file_, &status) == 0 && !S_ISREG(status.st_mode)) {
      fail(ErrorCode::file,
           "{} is not a regular file; another run reads the results again, so give one", path_);
    }
    if (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
      fail(ErrorCode::file, "{} is being written by another run: wait for it, or end it", path_);
    }
    read_earlier(index);
  } catch (...) {
    ::close(file_);
    throw;
  }
}

ResultsFile::~ResultsFile() { ::close(file_); }

void ResultsFile::read_earlier(InputIndex& index) {
  LineReader lines(path_);
  while (lines.next()) {
    if (lines.is_whole()) {
      mark_done(lines, index);
      continue;
    }
    // A torn line, if this is an output of tessera batch at all.
    const std::size_t common = std::min(kLineBegin.size(), lines.text().size());
    if (lines.text().substr(0, common) != kLineBegin.substr(0, common)) {
      fail(ErrorCode::file, "{} is not an output of tessera batch: give another --output", path_);
    }
    if (::ftruncate(file_, lines.begin()) != 0) {
      fail(ErrorCode::file, "cannot cut off the torn last line of {}: {}", path_,
           std::strerror(errno));
    }
  }
}

void ResultsFile::mark_done(const LineReader& line, InputIndex& index) const {
  const std::string where = fmt::format("{}, {}", path_, line_name(line.number()));
  const nlohmann::json json = [&] {
    try {
      return model::parse_json(line.text(), where);
    } catch (const Error& error) {
      fail(ErrorCode::file, "{}; this is not an output of tessera batch: give another --output",
           error.what());
    }
  }();
  const auto has = [&](const char* key) { return json.is_object() && json.contains(key); };
  if (!has("custom_id") || (!has("text") && !has("choices") && !has("error"))) {
    fail(ErrorCode::file, "{}: this is not a result of tessera batch; give another --output",
         where);
  }
  const model::JsonView view(json, where);
  if (const auto number = view.optional_integer("line", 1, INT64_MAX)) {
    if (!index.lacks_id(*number)) {
      fail(ErrorCode::file,
           "{} is for line {} of the input, which now has a custom_id: the results belong to "
           "another input; give another --output",
           where, *number);
    }
    return index.set_done(*number);
  }
  const std::string id = view.string("custom_id");
  const std::int64_t number = index.line_of(id);
  if (number == 0) {
    fail(ErrorCode::file,
         "{} has the custom_id {}, which no request has: the results belong to another input; give "
         "another --output",
         where, model::in_quotes(id));
  }
  index.set_done(number);
}

void ResultsFile::append(const std::string& line) {
  for (std::size_t written = 0; written < line.size();) {
    const ssize_t count = ::write(file_, line.data() + written, line.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      fail(ErrorCode::file,
           "cannot write {}: {}; make room, and run the same command again to continue", path_,
           std::strerror(errno));
    }
    written += static_cast<std::size_t>(count);
  }
  if (std::chrono::steady_clock::now() - synced_ >= kSyncEvery) sync();
}

void ResultsFile::sync() {
  synced_ = std::chrono::steady_clock::now();
  // Some file systems cannot sync.
  if (::fdatasync(file_) != 0 && errno != EINVAL && errno != EROFS) {
    fail(ErrorCode::file, "cannot write {}: {}", path_, std::strerror(errno));
  }
}

}  // namespace tessera::app
