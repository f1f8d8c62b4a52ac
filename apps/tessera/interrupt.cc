#include "interrupt.h"

#include <csignal>
#include <initializer_list>

namespace tessera::app {
namespace {

// A signal handler can reach nothing else.
std::atomic<bool> g_interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);

void on_interrupt(int) { g_interrupted = true; }

std::atomic<int> g_ended_by = 0;
static_assert(std::atomic<int>::is_always_lock_free);

void on_ending(int signal) { g_ended_by = signal; }

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

void catch_endings() {
  g_ended_by = 0;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler == SIG_IGN) continue;  // nohup, or a shell's background
    action.sa_handler = on_ending;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigemptyset(&action.sa_mask);
    sigaction(signal, &action, nullptr);
  }
}

int ended_by() { return g_ended_by; }

void ignore_file_size_signal() { std::signal(SIGXFSZ, SIG_IGN); }

bool interrupted() { return g_interrupted; }

}  // namespace tessera::app
