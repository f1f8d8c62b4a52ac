// A shared library that is opened by name at run time: a machine without it runs all the rest.
// NCCL and CUPTI are used in this way.
#pragma once

#include <initializer_list>
#include <string>

namespace tessera {

class SharedLibrary {
 public:
  // Opens the first of these files that the loader finds; it searches its own folders for a name
  // without one. The library stays open: some have threads of their own.
  explicit SharedLibrary(std::initializer_list<std::string> names);

  // Empty if the library was opened and has every function that was requested; else one sentence.
  const std::string& problem() const { return problem_; }
  template <typename Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(find_symbol(name));
  }

 private:
  void* find_symbol(const char* name);

  void* handle_ = nullptr;
  std::string name_;
  std::string problem_;
};

}  // namespace tessera
