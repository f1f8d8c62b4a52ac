#include "default_model.h"

#include <cstdlib>
#include <system_error>
#include <vector>

#include "core/fail.h"

namespace tessera::app {
namespace {

namespace fs = std::filesystem;

bool is_model(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "config.json", ignored);
}

}  // namespace

fs::path default_model_path() {
  const char* variable = std::getenv("TESSERA_DEFAULT_MODEL");
  if (variable != nullptr && *variable != '\0') {
    if (is_model(variable)) return variable;
    fail(ErrorCode::file,
         "TESSERA_DEFAULT_MODEL is '{}', which has no config.json; set it to a model's folder, or "
         "give "
         "--model DIR",
         variable);
  }
  std::vector<fs::path> places;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    places.push_back(
        (program.parent_path() / "../share/tessera/models/stories").lexically_normal());
  }
  places.emplace_back(TESSERA_SOURCE_MODEL);
  for (const fs::path& place : places) {
    if (is_model(place)) return place;
  }
  std::string list;
  for (const fs::path& place : places) list += (list.empty() ? "" : " or ") + place.string();
  fail(ErrorCode::file,
       "the bundled model is missing from {}; give --model DIR, or set TESSERA_DEFAULT_MODEL to a "
       "model's folder",
       list);
}

}  // namespace tessera::app
