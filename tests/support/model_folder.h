// A folder with a tiny checkpoint of tests/data/goldens and a tokenizer for it.
#pragma once

#include <string>
#include <string_view>

#include "support/files.h"
#include "support/tiny_tokenizer.h"

namespace tessera::test {

class ModelFolder {
 public:
  explicit ModelFolder(std::string_view golden, TinyVocabulary vocabulary, bool add_bos = false);

  std::filesystem::path path() const { return folder_.path(); }
  // " --model 'path' "
  std::string option() const { return " --model '" + path().string() + "' "; }
  // Adds or replaces a file.
  void write(std::string_view name, std::string_view text) const {
    write_text(path() / name, text);
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace tessera::test
