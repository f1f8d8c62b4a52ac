#include "server/api_key.h"

#include <cstddef>

namespace tessera::server {
namespace {

constexpr std::string_view kScheme = "Bearer ";

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
  if (!authorization.starts_with(kScheme)) return false;
  return equal_in_constant_time(authorization.substr(kScheme.size()), key_);
}

}  // namespace tessera::server
