#include "interrupt.h"

#include <csignal>

namespace tessera::app {
namespace {

// A signal handler can reach nothing else.
std::atomic<bool> g_interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);

void on_interrupt(int) { g_interrupted = true; }

}  // namespace

const std::atomic<bool>& catch_interrupt() {
  g_interrupted = false;
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  // The handler serves once. No SA_RESTART: an interrupted read from a terminal ends.
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  return g_interrupted;
}

bool interrupted() { return g_interrupted; }

}  // namespace tessera::app
