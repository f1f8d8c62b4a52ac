// The secret that clients show in "Authorization: Bearer KEY".
#pragma once

#include <string>
#include <string_view>

namespace tessera::server {

class ApiKey {
 public:
  ApiKey() = default;  // every client is let in
  explicit ApiKey(std::string key) : key_(std::move(key)) {}

  bool is_set() const { return !key_.empty(); }
  // Whether the header lets its client in. The time it takes does not tell how much of a key is
  // right.
  bool accepts(std::string_view authorization) const;

 private:
  std::string key_;
};

}  // namespace tessera::server
