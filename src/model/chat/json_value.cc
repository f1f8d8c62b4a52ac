#include "model/chat/json_value.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "model/chat/dict.h"

namespace tessera::model::chat {
namespace {

constexpr std::size_t kMostOpen = 64;  // nested lists and objects

Value foreign_text(Run& run, std::string_view bytes) {
  TextBuilder builder(run);
  builder.foreign(bytes);
  return builder.take();
}

// Builds the value while the parser reads.
class ValueReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  ValueReader(Run& run, std::string_view what) : run_(run), what_(what) {}

  bool null() override { return add(None{}); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(std::int64_t{value}); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max())) {
      refuse("a number does not fit into 64 bits");
    }
    return add(static_cast<std::int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    if (text.find_first_of(".eE") == std::string::npos)
      refuse("a number does not fit into 64 bits");
    return add(double{value});
  }
  bool string(string_t& value) override { return add(foreign_text(run_, value)); }
  bool binary(binary_t& /*value*/) override { return false; }

  bool start_object(std::size_t /*size*/) override {
    open_.push_back({std::nullopt, std::make_unique<DictBuilder>(run_)});
    return check_depth();
  }
  bool key(string_t& value) override {
    open_.back().key = foreign_text(run_, value);
    return true;
  }
  bool end_object() override {
    Value value = open_.back().dict->take();
    open_.pop_back();
    return add(std::move(value));
  }
  bool start_array(std::size_t /*size*/) override {
    open_.push_back({});
    return check_depth();
  }
  bool end_array() override {
    Value value = make_list(run_, std::move(open_.back().items));
    open_.pop_back();
    return add(std::move(value));
  }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    refuse(fmt::format("there is no JSON at byte {}", position));
  }

  Value take() { return std::move(result_); }

 private:
  struct Open {
    std::optional<Value> key{};
    std::unique_ptr<DictBuilder> dict{};  // null: a list
    std::vector<Value> items{};
  };

  [[noreturn]] void refuse(const std::string& reason) const {
    fail(ErrorCode::invalid_argument, "{}: {}", what_, reason);
  }
  bool check_depth() const {
    if (open_.size() > kMostOpen) {
      refuse(fmt::format("lists and objects are nested more than {} deep", kMostOpen));
    }
    return true;
  }
  bool add(Value value) {
    if (open_.empty()) {
      result_ = std::move(value);
    } else if (Open& open = open_.back(); open.dict != nullptr) {
      open.dict->set(*open.key, std::move(value));
    } else {
      open.items.push_back(std::move(value));
    }
    return true;
  }

  Run& run_;
  std::string_view what_;
  std::vector<Open> open_;
  Value result_;
};

}  // namespace

Value value_of_json(Run& run, std::string_view json, std::string_view what) {
  ValueReader reader(run, what);
  nlohmann::json::sax_parse(json, &reader);
  return reader.take();
}

}  // namespace tessera::model::chat
