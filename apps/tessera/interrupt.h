// Ctrl-C: the first one asks the work to end cleanly, a second one kills the program.
#pragma once

#include <atomic>

namespace tessera::app {

// What a program returns that Ctrl-C has ended (128 + SIGINT).
inline constexpr int kInterruptedStatus = 130;

// From now on the first Ctrl-C sets the flag. Calling it again arms it anew, with the flag cleared.
const std::atomic<bool>& catch_interrupt();
bool interrupted();

}  // namespace tessera::app
