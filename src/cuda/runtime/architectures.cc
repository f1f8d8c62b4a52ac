// The rules of nvcc, for an architecture X.Y:
//
//   machine code ("-real")   runs on X.Z with Z >= Y
//   PTX ("-virtual")         is compiled by the driver for X.Y and everything newer
//   neither suffix           has both
//   "a" (90a)                uses what only X.Y has: runs only there
//   "f" (100f)               uses what its family has: X.Z with Z >= Y, as PTX too
#include "cuda/runtime/architectures.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace tessera::cuda {
namespace {

// Ampere: the kernels use its asynchronous copies and bf16 arithmetic.
constexpr int kOldestMajor = 8;

struct Architecture {
  int major = 0, minor = 0;
  char variant = 0;  // 'a', 'f', or neither
  bool code = true, ptx = true;
};

// Parses "90a-real". Returns nothing for the words that CMake accepts instead of numbers: native,
// all.
std::optional<Architecture> parse(std::string_view text) {
  Architecture result;
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  result.major = number / 10;
  result.minor = number % 10;
  if (text.starts_with('a') || text.starts_with('f')) {
    result.variant = text.front();
    text.remove_prefix(1);
  }
  result.code = text != "-virtual";
  result.ptx = text != "-real";
  return result;
}

bool runs_on(const Architecture& built, int major, int minor) {
  const bool same_family = major == built.major && minor >= built.minor;
  if (built.variant == 'a') return same_family && minor == built.minor;
  if (same_family) return true;
  return built.ptx && built.variant == 0 && major > built.major;
}

}  // namespace

std::string why_no_kernels(int major, int minor, std::string_view architectures) {
  if (major < kOldestMajor) {
    return fmt::format(
        "its compute capability {}.{} is older than {}.0, the oldest that Tessera has kernels for",
        major, minor, kOldestMajor);
  }
  for (std::string_view rest = architectures; !rest.empty();) {
    const std::size_t space = std::min(rest.find(' '), rest.size());
    const std::optional<Architecture> built = parse(rest.substr(0, space));
    if (!built || runs_on(*built, major, minor)) return "";
    rest.remove_prefix(std::min(space + 1, rest.size()));
  }
  return fmt::format(
      "this build has kernels for {} and none for compute capability {}.{}: build with "
      "-DTESSERA_CUDA_ARCHITECTURES={}{}",
      architectures, major, minor, major, minor);
}

}  // namespace tessera::cuda
