#include "engine/ngram_draft.h"

#include <algorithm>

namespace tessera::engine {
namespace {

std::uint64_t hash_of_run(std::span<const std::int32_t> run) {
  std::uint64_t hash = 0x9e3779b97f4a7c15u + run.size();
  for (const std::int32_t id : run) {
    hash = (hash ^ static_cast<std::uint32_t>(id)) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

// Runs that end before the last token have a token after them.
void NgramDraft::add(std::span<const std::int32_t> ids) {
  for (std::size_t end = added_ + 1; end < ids.size(); ++end) {
    for (std::size_t length = kShortest; length <= std::min(kLongest, end); ++length) {
      index_[hash_of_run(ids.subspan(end - length, length))] = end;
    }
    added_ = end;
  }
}

// Where the tokens after an earlier occurrence of the last `length` tokens begin, or the end.
std::size_t NgramDraft::find(std::span<const std::int32_t> ids, std::size_t length) const {
  const std::span<const std::int32_t> run = ids.last(length);
  const auto found = index_.find(hash_of_run(run));
  // A run of another length may have the same hash, and begin too early for this one.
  if (found == index_.end() || found->second < length) return ids.size();
  const std::span<const std::int32_t> there = ids.subspan(found->second - length, length);
  return std::equal(run.begin(), run.end(), there.begin()) ? found->second : ids.size();
}

void NgramDraft::propose(std::span<const std::int32_t> ids, std::int64_t count,
                         std::vector<std::int32_t>& drafts) {
  drafts.clear();
  add(ids);
  if (count < 1) return;
  for (std::size_t length = std::min(kLongest, ids.size()); length >= kShortest; --length) {
    const std::size_t begin = find(ids, length);
    if (begin == ids.size()) continue;
    // Where the occurrence overlaps the end, the text repeats itself: so do the guesses.
    const std::size_t period = ids.size() - begin;
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      drafts.push_back(ids[begin + i % period]);
    }
    return;
  }
}

}  // namespace tessera::engine
