#include "server/api_key.h"

#include <algorithm>
#include <cstddef>
#include <optional>

namespace tessera::server {
namespace {

constexpr std::string_view kScheme = "bearer";

char small(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// The key behind the scheme. A scheme may be written in capitals, with several spaces behind it
// (RFC 9110, 11.1 and 11.4).
std::optional<std::string_view> key_of(std::string_view authorization) {
  const std::string_view scheme = authorization.substr(0, kScheme.size());
  if (!std::equal(scheme.begin(), scheme.end(), kScheme.begin(), kScheme.end(),
                  [](char a, char b) { return small(a) == b; })) {
    return std::nullopt;
  }
  const std::size_t key = authorization.find_first_not_of(' ', kScheme.size());
  if (key == kScheme.size() || key == std::string_view::npos) return std::nullopt;
  return authorization.substr(key);
}

// Looks at every byte of what was given, wherever the first difference is.
bool equal_in_constant_time(std::string_view given, std::string_view secret) {
  unsigned difference = given.size() == secret.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const auto a = static_cast<unsigned char>(given[i]);
    const auto b = static_cast<unsigned char>(secret[i % secret.size()]);
    difference |= static_cast<unsigned>(a ^ b);
  }
  return difference == 0;
}

}  // namespace

bool ApiKey::accepts(std::string_view authorization) const {
  if (!is_set()) return true;
  const std::optional<std::string_view> given = key_of(authorization);
  return given && equal_in_constant_time(*given, key_);
}

}  // namespace tessera::server
