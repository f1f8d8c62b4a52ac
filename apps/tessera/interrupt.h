// Signals. The first Ctrl-C asks the work to end cleanly, a second one kills the program.
#pragma once

#include <atomic>

namespace tessera::app {

// Exit status of a program that Ctrl-C ended (128 + SIGINT).
inline constexpr int kInterruptedStatus = 130;

// From now on the first Ctrl-C sets the flag. Another call clears the flag and starts over.
const std::atomic<bool>& catch_interrupt();
bool interrupted();

// For work that has something to clean up: from now on the first SIGINT, SIGTERM or SIGHUP is only
// remembered, and a second one kills. One that the program was told to ignore stays ignored.
void catch_endings();
int ended_by();  // the signal; 0: none yet

// A write beyond the file-size limit (ulimit -f) then fails as one to a full disk does, and does
// not kill the program.
void ignore_file_size_signal();

}  // namespace tessera::app
