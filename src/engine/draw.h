// A token to be drawn, with what it is drawn by.
#pragma once

#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include "tessera/sampling.h"

namespace tessera {

// Draws the token after a row of logits. With drafts, row i + 1 holds the logits after drafts[i]:
// as long as the drawn token is the draft, the next row is drawn from as well. So `drawn` is what
// drawing one token at a time would have given, and its last token alone is new to the model.
struct Draw {
  Sampler* sampler = nullptr;  // has seen the tokens before; accepts those that are drawn
  std::uint64_t stream = 0;    // names the sampler, from its first draw to its last
  std::uint64_t ahead = 0;     // tokens that were drawn for it before, and not accepted yet
  std::int64_t row = 0;        // of the logits
  std::span<const std::int32_t> drafts{};
  std::int64_t top_logprobs = -1;  // as in GenerateOptions
  std::vector<Sampled>* drawn = nullptr;
  std::exception_ptr error{};  // set if this row has no token; other rows are not touched
};

// How many of the largest logits of a row these draws read, each with the lower ids among equals: 1
// for the most likely token, k with top-k. 0: all of them, or too many to be worth a choice.
std::int64_t largest_logits_of(std::span<const Draw> draws);

}  // namespace tessera
