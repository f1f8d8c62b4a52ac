#include "batch_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/fail.h"
#include "model/checkpoint/json.h"

namespace tessera::app {

LineReader::LineReader(const std::string& path) : path_(path), buffer_(std::size_t{1} << 18) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    fail(ErrorCode::file, "{} is not a regular file; the requests are read twice, so give one",
         path);
  }
  file_.open(path, std::ios::binary);
  if (!file_) fail(ErrorCode::file, "cannot read {}: {}", path, std::strerror(errno));
}

bool LineReader::fill() {
  if (at_ < filled_) return true;
  file_.read(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
  if (file_.bad()) fail(ErrorCode::file, "cannot read {}: {}", path_, std::strerror(errno));
  at_ = 0;
  filled_ = static_cast<std::size_t>(file_.gcount());
  return filled_ > 0;
}

bool LineReader::next() {
  text_.clear();
  is_whole_ = is_too_long_ = false;
  begin_ = end_;
  while (!is_whole_ && fill()) {
    const char* from = buffer_.data() + at_;
    const char* end = buffer_.data() + filled_;
    const char* newline = std::find(from, end, '\n');
    is_whole_ = newline != end;
    const std::size_t bytes = static_cast<std::size_t>(newline - from);
    if (text_.size() + bytes <= kMostBytes) {
      text_.append(from, bytes);
    } else {
      is_too_long_ = true;
    }
    const std::size_t taken = bytes + (is_whole_ ? 1 : 0);
    at_ += taken;
    end_ += static_cast<std::int64_t>(taken);
  }
  if (end_ == begin_) return false;
  ++number_;
  return true;
}

bool LineReader::is_blank() const { return text_.find_first_not_of(" \t\r") == std::string::npos; }

std::string line_name(std::int64_t number) { return fmt::format("line {}", number); }

RequestLine parse_request_line(const LineReader& line) {
  RequestLine request;
  try {
    const std::string where = line_name(line.number());
    if (line.is_too_long()) {
      fail(ErrorCode::file, "{} has more than {} bytes, the most that a request may have", where,
           LineReader::kMostBytes);
    }
    request.json = model::parse_json(line.text(), where);
    request.id = model::JsonView(request.json, where).string("custom_id");
    if (request.id.empty()) {
      fail(ErrorCode::file, "{}: custom_id is \"\", it must not be empty", where);
    }
  } catch (const Error& error) {
    request.id.clear();
    request.error = error.what();
  }
  return request;
}

InputIndex::InputIndex(const std::string& path) {
  LineReader lines(path);
  while (lines.next()) {
    states_.push_back(State::blank);
    if (lines.is_blank()) continue;
    ++requests_;
    const RequestLine request = parse_request_line(lines);
    const bool is_first =
        !request.id.empty() && line_of_.try_emplace(request.id, lines.number()).second;
    states_.back() = is_first ? State::has_id : State::lacks_id;
  }
  done_.resize(states_.size());
}

std::int64_t InputIndex::line_of(const std::string& id) const {
  const auto found = line_of_.find(id);
  return found == line_of_.end() ? 0 : found->second;
}

InputIndex::State InputIndex::state(std::int64_t line) const {
  if (line < 1 || line > std::ssize(states_)) return State::blank;
  return states_[static_cast<std::size_t>(line - 1)];
}

bool InputIndex::is_unchanged(std::int64_t line, const std::optional<RequestLine>& now) const {
  if (!now) return state(line) == State::blank;
  const std::int64_t first = line_of(now->id);  // 0 without a custom_id
  if (state(line) == State::has_id) return first == line;
  return state(line) == State::lacks_id && first < line && (now->id.empty() || first > 0);
}

bool InputIndex::is_done(std::int64_t line) const {
  return line >= 1 && line <= std::ssize(done_) && done_[static_cast<std::size_t>(line - 1)];
}

void InputIndex::set_done(std::int64_t line) {
  if (state(line) == State::blank || is_done(line)) return;
  done_[static_cast<std::size_t>(line - 1)] = true;
  ++done_count_;
}

}  // namespace tessera::app
