// Ctrl-C: the first one asks the work to end cleanly, a second one kills the program.
#pragma once

#include <atomic>

namespace tessera::app {

// Exit status of a program that Ctrl-C ended (128 + SIGINT).
inline constexpr int kInterruptedStatus = 130;

// From now on the first Ctrl-C sets the flag. Another call clears the flag and starts over.
const std::atomic<bool>& catch_interrupt();
bool interrupted();

}  // namespace tessera::app
