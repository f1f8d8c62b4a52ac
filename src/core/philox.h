// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): a counter
// and a key give four random words, with no state. The numbers are the same on every device and in
// every order.
#pragma once

#include <array>
#include <cstdint>

namespace tessera {

using PhiloxWords = std::array<std::uint32_t, 4>;

constexpr PhiloxWords philox(std::uint64_t key, PhiloxWords counter) {
  std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  // Not an array: sanitizers would check each of its indices, in four times the time.
  std::uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0;
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(p1);
    c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

// Attention dropout: the words for keys 4 * (key / 4) .. + 3 of one (batch, head, query); key uses
// word key % 4.
constexpr PhiloxWords dropout_words(std::uint64_t seed, std::uint32_t batch, std::uint32_t head,
                                    std::uint32_t query, std::uint32_t key) {
  return philox(seed, {key / 4, query, head, batch});
}

// Norm dropout: the words for columns 4 * (column / 4) .. + 3 of one row; column uses word
// column % 4. The last word of the counter is a number that is no batch index of attention.
inline constexpr std::uint32_t kNormDropoutStream = 0x4E4F524Du;
constexpr PhiloxWords norm_dropout_words(std::uint64_t seed, std::int64_t row,
                                         std::uint32_t column) {
  return philox(seed, {column / 4, static_cast<std::uint32_t>(row),
                       static_cast<std::uint32_t>(row >> 32), kNormDropoutStream});
}

// An element is kept when its word is at least this. p = 0 keeps all.
constexpr std::uint32_t dropout_threshold(float p) {
  const double threshold = static_cast<double>(p) * 4294967296.0;
  return threshold >= 4294967295.0 ? 0xffffffffu : static_cast<std::uint32_t>(threshold);
}

// What kept elements are multiplied by.
constexpr float kept_factor(float p) { return static_cast<float>(1.0 / (1.0 - double{p})); }

}  // namespace tessera
