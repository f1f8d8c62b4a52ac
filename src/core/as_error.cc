#include "core/as_error.h"

#include <filesystem>
#include <new>
#include <stdexcept>

#include "core/fail.h"

namespace tessera {
namespace {

[[noreturn]] void fail_for_memory(std::string_view doing) {
  fail(ErrorCode::out_of_memory, "{}: the host does not have enough memory; free some", doing);
}

}  // namespace

void rethrow_as_error(std::string_view doing) {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    fail_for_memory(doing);
  } catch (const std::length_error&) {  // a container or string larger than any memory
    fail_for_memory(doing);
  } catch (const std::filesystem::filesystem_error& error) {
    const std::string path = error.path1().string();
    fail(ErrorCode::file, "{}: {}{}{}", doing, path, path.empty() ? "" : ": ",
         error.code().message());
  }
}

}  // namespace tessera
