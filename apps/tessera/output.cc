#include "output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/fail.h"

namespace tessera::app {

void write_out(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  flush_out();
}

void flush_out() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  fail(ErrorCode::file,
       "the output could not be written: {}; free some space, or send it elsewhere",
       std::strerror(errno));
}

}  // namespace tessera::app
