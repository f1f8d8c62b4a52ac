#include "support/tokenizer_files.h"

#include <array>
#include <cstdio>
#include <filesystem>

#include "support/files.h"

namespace tessera::test {
namespace {

std::filesystem::path path_of(const std::string& name) {
  if (name.starts_with("tiny-")) return data_path("tokenizers/" + name + ".tokenizer.json");
  if (name == "llama2") return shared_path("models/stories15M/tokenizer.json");
  return shared_path("goldens/tokenizers/" + name + ".tokenizer.json.xz");
}

// Empty if the program xz is missing.
std::string unpack(const std::filesystem::path& path) {
  std::string text;
  FILE* const pipe = popen(("xz -dc '" + path.string() + "' 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return text;
  std::array<char, 1 << 16> chunk;
  while (const std::size_t n = fread(chunk.data(), 1, chunk.size(), pipe)) {
    text.append(chunk.data(), n);
  }
  return pclose(pipe) == 0 ? text : std::string();
}

}  // namespace

std::optional<Tokenizer> load_tokenizer(const std::string& name) {
  const std::filesystem::path path = path_of(name);
  if (!exists(path)) return std::nullopt;
  if (path.extension() != ".xz") return Tokenizer::from_file(path);
  const std::string text = unpack(path);
  if (text.empty()) return std::nullopt;
  return Tokenizer::from_json(text, path.string());
}

std::string why_no_tokenizer(const std::string& name) {
  const std::filesystem::path path = path_of(name);
  return exists(path) ? "the program xz is needed to unpack " + path.string() : missing(path);
}

bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const auto lead = static_cast<unsigned char>(text[at]);
    const std::size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if ((lead >= 0x80 && lead < 0xC2) || lead > 0xF4 || at + length > text.size()) return false;
    for (std::size_t i = 1; i < length; ++i) {
      if ((static_cast<unsigned char>(text[at + i]) & 0xC0) != 0x80) return false;
    }
    at += length;
  }
  return true;
}

}  // namespace tessera::test
