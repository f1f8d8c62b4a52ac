#include "cuda/runtime/driver_version.h"

#include <cctype>
#include <sstream>

namespace tessera::cuda {
namespace {

// Digits with at least one point between them.
bool is_version(const std::string& word) {
  bool point = false;
  for (std::size_t i = 0; i < word.size(); ++i) {
    const bool inside = i > 0 && i + 1 < word.size();
    if (word[i] == '.' && inside) {
      point = true;
    } else if (!std::isdigit(static_cast<unsigned char>(word[i]))) {
      return false;
    }
  }
  return point;
}

}  // namespace

// The first line is "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.124.06  Release Build".
std::string driver_version_in(const std::string& text) {
  std::istringstream line(text.substr(0, text.find('\n')));
  for (std::string word; line >> word;) {
    if (is_version(word)) return word;
  }
  return "";
}

}  // namespace tessera::cuda
