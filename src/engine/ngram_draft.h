// Guesses the next tokens of a stream by looking up its last few tokens further back, in the prompt
// or in the text: what followed them there may follow again. Text that quotes its prompt, code and
// lists are full of such repetitions.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace tessera::engine {

class NgramDraft {
 public:
  // Puts up to `count` guesses into `drafts`. `ids` is the stream so far; it only ever grows.
  void propose(std::span<const std::int32_t> ids, std::int64_t count,
               std::vector<std::int32_t>& drafts);

 private:
  // Where the tokens after the latest occurrence of a run of tokens begin, by a hash of the run.
  using Index = std::unordered_map<std::uint64_t, std::size_t>;

  static constexpr std::size_t kLongest = 4, kShortest = 2;  // tokens of a run

  void add(std::span<const std::int32_t> ids);
  std::size_t find(std::span<const std::int32_t> ids, std::size_t length) const;

  Index index_;
  std::size_t added_ = 0;  // ends of runs that are in the index
};

}  // namespace tessera::engine
