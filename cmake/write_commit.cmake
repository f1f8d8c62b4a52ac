# For cmake -P: writes FILE, a source file with the commit of SOURCE_DIR, unless it already has that commit.
execute_process(COMMAND git -C ${SOURCE_DIR} describe --always --dirty --exclude=* OUTPUT_VARIABLE commit
  OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE no_git ERROR_QUIET)
if(no_git)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${FILE} @ONLY CONTENT [[
// Written by cmake/write_commit.cmake.
#include "report_about.h"

namespace tessera::app {

std::string commit() { return "@commit@"; }

}  // namespace tessera::app
]])
