// Ends the program if a call hangs, and says which call it was.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace tessera::test {

class Watchdog {
 public:
  // A call that takes longer than this ends the process with status 3. `verbose`: prints every call
  // as it begins.
  Watchdog(std::chrono::seconds limit, bool verbose);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // From now on, this is the call that runs.
  void begin(std::string call);
  void end() { begin(""); }

 private:
  void watch();

  std::chrono::seconds limit_;
  bool verbose_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string call_;
  std::int64_t looks_ = 0;  // at this call
  bool over_ = false;
  std::thread thread_;
};

}  // namespace tessera::test
