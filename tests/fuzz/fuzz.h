// What every fuzz target promises: a reader takes an input or refuses it with an Error whose text
// is one short sentence. Anything else, another exception too, ends the run as a crash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <string_view>

#include "tessera/error.h"

namespace tessera::fuzz {

// A sentence can be shown on a terminal as it is. The longest we write lists what is supported.
inline bool is_sentence(std::string_view text) {
  constexpr std::size_t kMaxLength = 1000;
  if (text.empty() || text.size() > kMaxLength) return false;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) return false;
  }
  return true;
}

// True where `read` took the input.
template <typename F>
bool takes(F&& read) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    if (is_sentence(error.what())) return false;
    std::cerr << "The text of an Error is not one short sentence:\n" << error.what() << '\n';
    std::abort();
  }
}

// Ends the run as a failure where the code until its end takes more time than what it reads and
// makes explains. The time is that of the processor, so a busy machine changes little.
class TimeBound {
 public:
  explicit TimeBound(std::size_t bytes) : bytes_(bytes) {}
  TimeBound(const TimeBound&) = delete;
  TimeBound& operator=(const TimeBound&) = delete;

  void add(std::size_t made) { bytes_ += made; }

  ~TimeBound() {
    const double took = now() - start_;
    if (took <= kSecondsAtStart + kSecondsPerByte * static_cast<double>(bytes_)) return;
    std::cerr << "Took " << took << " s for " << bytes_ << " bytes.\n";
    std::abort();
  }

 private:
  static constexpr double kSecondsAtStart = 0.5;
  static constexpr double kSecondsPerByte = 8e-6;

  static double now() {
    std::timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

  std::size_t bytes_;
  double start_ = now();
};

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace tessera::fuzz
