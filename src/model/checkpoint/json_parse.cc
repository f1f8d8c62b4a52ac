// Parsing: nlohmann's parser reports events, and this builds the tree from them. So a duplicate
// key, deep nesting or a flood of values is refused as soon as it appears, before it takes memory.
// The parser checks that strings are UTF-8.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "model/checkpoint/input_file.h"
#include "model/checkpoint/json.h"
#include "model/checkpoint/quote.h"

namespace tessera::model {
namespace {

// No config or tokenizer nests deeper than ten; recursive readers of the tree stay safe.
constexpr std::size_t kMaxDepth = 64;
// A million tensors of rank 2 are eight million values. A value takes up to a hundred bytes of
// memory, and a text of 100 MB could hold fifty million.
constexpr std::int64_t kMaxValues = 10'000'000;

// nlohmann's message, without its prefix, and without the text it last read: that can be long, or
// not fit for a terminal. It is cut out by its length, because it may contain any of these words.
std::string reason_of(const Json::exception& error, const std::string& last_read) {
  if (error.id == 406) return "a number is too large";  // out_of_range.406, the only one in parsing
  constexpr std::string_view kLastRead = "; last read: '";
  std::string text = error.what();
  if (const auto dash = text.find(" - "); dash != std::string::npos) text.erase(0, dash + 3);
  if (const auto at = text.find(kLastRead); at != std::string::npos) {
    text.erase(at, kLastRead.size() + last_read.size() + 1);  // and its closing quotation mark
  }
  return text;
}

class TreeBuilder {  // nlohmann's SAX interface
 public:
  explicit TreeBuilder(const std::string& where) : where_(where) {}
  Json take() { return std::move(root_); }

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(std::int64_t value) { return put(value); }
  bool number_unsigned(std::uint64_t value) { return put(value); }
  bool number_float(double value, const std::string&) { return put(value); }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(Json::binary_t& value) { return put(std::move(value)); }  // never in a text

  bool start_object(std::size_t) { return open(Json::object()); }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    auto& members = open_.back()->get_ref<Json::object_t&>();
    const auto [member, inserted] = members.try_emplace(std::move(name));
    if (!inserted) {
      fail(ErrorCode::file, "{}: the key {} appears twice in one object; each may appear once",
           where_, in_quotes(member->first));
    }
    member_ = &member->second;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& last_read,
                   const Json::exception& error) {
    fail(ErrorCode::file, "{}: not valid JSON at byte {}: {}", where_, position,
         reason_of(error, last_read));
  }

 private:
  bool put(Json value) {
    place(std::move(value));
    return true;
  }

  Json* place(Json value) {
    if (++values_ > kMaxValues) {
      fail(ErrorCode::file, "{}: more than {} JSON values; no model has so many", where_,
           kMaxValues);
    }
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_array()) {
      open_.back()->push_back(std::move(value));
      return &open_.back()->back();
    }
    *member_ = std::move(value);
    return member_;
  }

  bool open(Json container) {
    if (open_.size() == kMaxDepth) {
      fail(ErrorCode::file, "{}: JSON nested deeper than {} levels; no model needs that", where_,
           kMaxDepth);
    }
    open_.push_back(place(std::move(container)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& where_;
  Json root_;
  std::vector<Json*> open_;  // from the root to the innermost; only the last one grows, so all stay
  Json* member_ = nullptr;   // of the innermost object: where the next value goes
  std::int64_t values_ = 0;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& where) {
  TreeBuilder builder(where);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

Json read_json_file(const std::filesystem::path& path, std::int64_t max_bytes) {
  const std::string text = read_small_file(path, max_bytes);
  if (text.empty()) fail(ErrorCode::file, "{} is empty", path.string());
  return parse_json(text, path.string());
}

}  // namespace tessera::model
