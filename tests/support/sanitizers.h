// Whether a sanitizer watches this build. Code then takes 5 to 20 times as long, and kernels on an
// emulated GPU take thousands of times as long as on a real one.
#pragma once

namespace tessera::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// For a test of many combinations: takes all of them, or one in `step` under a sanitizer. Every
// value of every loop still occurs if `step` and the lengths of the inner loops have no common
// divisor.
class Thinned {
 public:
  explicit Thinned(int step) : step_(kSanitized ? step : 1) {}

  bool takes_next() { return count_++ % step_ == 0; }

 private:
  int step_;
  int count_ = 0;
};

}  // namespace tessera::test
