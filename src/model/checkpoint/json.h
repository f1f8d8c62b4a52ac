// JSON from untrusted files: parsing that refuses duplicate keys and deep nesting, and getters
// whose errors name the key and the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::model {

using Json = nlohmann::json;

// Throws Error (file) with one sentence that starts with `where`.
Json parse_json(std::string_view text, const std::string& where);
// Refuses files over `max_bytes`.
Json read_json_file(const std::filesystem::path& path, std::int64_t max_bytes);
// Of config.json and those that belong to it; the largest published ones are a few kilobytes.
inline constexpr std::int64_t kMaxConfigBytes = 16 << 20;

// A value inside a sentence: "64", 64, an array of 3, an object.
std::string describe(const Json& value);

// A member of an object, of the right type, or an Error that names the key and what it should be.
// The optional ones are empty if the key is missing or null.
class JsonView {
 public:
  JsonView(const Json& object, std::string where);

  bool has(std::string_view key) const;          // there, and not null
  bool lacks(std::string_view key) const;        // not even there as null
  const Json* find(std::string_view key) const;  // nullptr if missing or null
  std::int64_t integer(std::string_view key, std::int64_t low, std::int64_t high) const;
  std::optional<std::int64_t> optional_integer(std::string_view key, std::int64_t low,
                                               std::int64_t high) const;
  std::optional<double> optional_number(std::string_view key) const;
  std::optional<bool> optional_boolean(std::string_view key) const;
  std::string string(std::string_view key) const;
  std::optional<std::string> optional_string(std::string_view key) const;
  std::optional<JsonView> optional_object(std::string_view key) const;
  std::vector<std::string> strings(std::string_view key) const;  // empty if missing or null

  // From here on, every key that is read is added to `asked`. Tests compare an architecture's list
  // of keys with it.
  void record_keys(std::set<std::string, std::less<>>& asked) { asked_ = &asked; }

  const Json& json() const { return *object_; }
  const std::string& where() const { return where_; }

 private:
  Json::const_iterator look_up(std::string_view key) const;

  const Json* object_;
  std::string where_;
  std::set<std::string, std::less<>>* asked_ = nullptr;
};

}  // namespace tessera::model
