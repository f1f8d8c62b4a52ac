// The requests of tessera batch: a file with one JSON object per line, read one line at a time.
#pragma once

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tessera::app {

// The lines of a regular file. A line that is too long takes no more memory than others.
class LineReader {
 public:
  static constexpr std::size_t kMostBytes = std::size_t{256} << 20;  // of a line

  explicit LineReader(const std::string& path);

  // False at the end of the file.
  bool next();
  const std::string& text() const { return text_; }  // without its newline
  std::int64_t number() const { return number_; }    // from 1
  std::int64_t begin() const { return begin_; }      // offset in the file
  bool is_whole() const { return is_whole_; }        // ends in a newline
  bool is_too_long() const { return is_too_long_; }  // then text() is its beginning
  bool is_blank() const;

 private:
  bool fill();

  std::string path_;
  std::ifstream file_;
  std::vector<char> buffer_;
  std::size_t at_ = 0, filled_ = 0;
  std::string text_;
  std::int64_t number_ = 0, begin_ = 0, end_ = 0;
  bool is_whole_ = false, is_too_long_ = false;
};

// A line of requests, as far as it can be understood without a model.
struct RequestLine {
  std::string id;  // custom_id; empty: it has none
  nlohmann::json json;
  std::string error;  // why there is no custom_id
};
RequestLine parse_request_line(const LineReader& line);
// "line 7", as errors name it.
std::string line_name(std::int64_t number);

// Which line has which custom_id, and which lines have a result. Lines are known by number.
class InputIndex {
 public:
  // Reads the whole file once.
  explicit InputIndex(const std::string& path);

  std::int64_t lines() const { return std::ssize(states_); }
  std::int64_t requests() const { return requests_; }  // lines that are not blank
  // Whether a line is as it was: blank, or with the same custom_id, or still without one of its
  // own.
  bool is_unchanged(std::int64_t line, const std::optional<RequestLine>& now) const;
  // The line that used this custom_id first; 0: none did.
  std::int64_t line_of(const std::string& id) const;
  // Is there such a line, and has it no custom_id of its own: none, or one of an earlier line?
  bool lacks_id(std::int64_t line) const { return state(line) == State::lacks_id; }

  bool is_done(std::int64_t line) const;
  void set_done(std::int64_t line);
  std::int64_t done() const { return done_count_; }

 private:
  enum class State : std::uint8_t { blank, lacks_id, has_id };
  State state(std::int64_t line) const;

  std::unordered_map<std::string, std::int64_t> line_of_;
  std::vector<State> states_;  // of line i + 1
  std::vector<bool> done_;     // of line i + 1
  std::int64_t requests_ = 0, done_count_ = 0;
};

}  // namespace tessera::app
