#include "support/model_folder.h"

namespace tessera::test {

ModelFolder::ModelFolder(std::string_view golden, TinyVocabulary vocabulary, bool add_bos) {
  const std::filesystem::path from = data_path("goldens") / golden;
  for (const char* name : {"config.json", "generation_config.json", "model.safetensors"}) {
    if (exists(from / name)) copy_file(from / name, path() / name);
  }
  write("tokenizer.json", tiny_tokenizer_json(vocabulary, add_bos));
}

}  // namespace tessera::test
