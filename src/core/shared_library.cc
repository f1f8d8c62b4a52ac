#include "core/shared_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace tessera {

SharedLibrary::SharedLibrary(std::initializer_list<std::string> names) {
  for (const std::string& name : names) {
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    name_ = handle_ != nullptr ? name : *names.begin();
    if (handle_ != nullptr) return;
  }
  problem_ = fmt::format("{} is not where the loader looks (LD_LIBRARY_PATH)", name_);
}

void* SharedLibrary::find_symbol(const char* name) {
  if (handle_ == nullptr) return nullptr;
  void* symbol = dlsym(handle_, name);
  if (symbol == nullptr && problem_.empty()) problem_ = fmt::format("{} has no {}", name_, name);
  return symbol;
}

}  // namespace tessera
