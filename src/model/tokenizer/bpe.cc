#include "model/tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

#include "core/fail.h"
#include "model/checkpoint/quote.h"
#include "model/tokenizer/unicode.h"

namespace tessera::model {
namespace {

bool is_in(const IdSet* set, std::int32_t id) { return set != nullptr && set->has(id); }

// Latin, Greek, Cyrillic, Hebrew, Arabic and the byte-level alphabet are looked up in an array.
constexpr char32_t kArrayCharacters = 0x800;
constexpr std::size_t kMaxWordBytes = INT32_MAX;  // symbols are numbered with 32 bits

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) |
         static_cast<std::uint32_t>(right);
}

}  // namespace

MergeTable::MergeTable(const std::vector<Merge>& merges, const std::string& where) {
  slots_.assign(std::bit_ceil(2 * merges.size() + 1), Slot{0, kNone});
  results_.reserve(merges.size());
  const std::size_t mask = slots_.size() - 1;
  for (const Merge& merge : merges) {
    const std::uint64_t pair = pair_key(merge.left, merge.right);
    std::size_t slot = hash(merge.left, merge.right) & mask, moved = 0;
    for (; slots_[slot].rank != kNone && slots_[slot].pair != pair; ++moved) {
      slot = (slot + 1) & mask;
    }
    displacement_ = std::max(displacement_, moved);
    if (moved > kMaxDisplacement) {
      fail(ErrorCode::file, "{}: more than {} merges have one hash", where, kMaxDisplacement);
    }
    slots_[slot] = {pair, static_cast<std::uint32_t>(results_.size())};
    results_.push_back(merge.result);
  }
}

// The end of MurmurHash3: every bit depends on all of the pair.
std::uint64_t MergeTable::hash(std::int32_t left, std::int32_t right) {
  std::uint64_t bits = pair_key(left, right);
  bits = (bits ^ (bits >> 33)) * 0xFF51AFD7ED558CCDu;
  bits = (bits ^ (bits >> 33)) * 0xC4CEB9FE1A85EC53u;
  return bits ^ (bits >> 33);
}

std::uint32_t MergeTable::rank(std::int32_t left, std::int32_t right) const {
  const std::size_t mask = slots_.size() - 1;
  const std::uint64_t pair = pair_key(left, right);
  std::size_t slot = hash(left, right) & mask;
  for (std::size_t moved = 0; moved <= displacement_ && slots_[slot].rank != kNone; ++moved) {
    if (slots_[slot].pair == pair) return slots_[slot].rank;
    slot = (slot + 1) & mask;
  }
  return kNone;
}

Bpe::Bpe(Vocabulary vocabulary, MergeTable merges, BpeOptions options)
    : vocabulary_(std::move(vocabulary)),
      merges_(std::move(merges)),
      options_(std::move(options)),
      character_tokens_(kArrayCharacters, kNoToken) {
  if (options_.unk_token) unk_ = vocabulary_.find(*options_.unk_token);
  for (unsigned byte = 0; byte < 256; ++byte) {
    byte_tokens_[byte] = vocabulary_.find(fmt::format("<0x{:02X}>", byte));
  }
  for (char32_t c = 0; c < kArrayCharacters; ++c) {
    std::string character;
    append_utf8(character, c);
    character_tokens_[c] = vocabulary_.find(character);
  }
}

void Bpe::encode(std::string_view word, const IdSet* forbidden, Scratch& scratch,
                 std::vector<std::int32_t>& ids) const {
  if (word.empty()) return;
  if (word.size() > kMaxWordBytes) {
    fail(ErrorCode::unsupported, "a word of {} bytes is too long for the tokenizer; at most {}",
         word.size(), kMaxWordBytes);
  }
  if (options_.ignore_merges) {
    const std::int32_t whole = vocabulary_.find(word);
    if (whole != kNoToken && !is_in(forbidden, whole)) {
      ids.push_back(whole);
      return;
    }
  }
  scratch.forbidden = forbidden;
  add_symbols(word, scratch);
  merge(scratch);
  for (const Scratch::Symbol& symbol : scratch.symbols) {
    if (symbol.id != kNoToken) ids.push_back(symbol.id);
  }
}

std::int32_t Bpe::find_character(std::string_view character, bool first, bool last) const {
  const bool prefix = !first && !options_.continuing_subword_prefix.empty();
  const bool suffix = last && !options_.end_of_word_suffix.empty();
  if (prefix || suffix) {
    std::string spelled = prefix ? options_.continuing_subword_prefix : "";
    spelled += character;
    if (suffix) spelled += options_.end_of_word_suffix;
    return vocabulary_.find(spelled);
  }
  std::size_t at = 0;
  const char32_t c = next_code_point(character, at);
  return c < kArrayCharacters ? character_tokens_[c] : vocabulary_.find(character);
}

// One symbol for each character that the vocabulary has, and <0xHH> or the unknown token for the
// others. Without either, such characters are dropped, as the format requires.
void Bpe::add_symbols(std::string_view word, Scratch& scratch) const {
  std::vector<Scratch::Symbol>& symbols = scratch.symbols;
  symbols.clear();
  const auto add = [&](std::int32_t id) { symbols.push_back({id, 0, 0}); };
  bool pending_unk = false;
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t begin = at;
    next_code_point(word, at);
    const std::string_view character = word.substr(begin, at - begin);
    std::int32_t id = find_character(character, begin == 0, at == word.size());
    if (is_in(scratch.forbidden, id)) id = kNoToken;
    if (id == kNoToken && options_.byte_fallback && add_bytes(character, scratch)) continue;
    if (pending_unk && (id != kNoToken || !options_.fuse_unk)) {
      add(unk_);
      pending_unk = false;
    }
    if (id != kNoToken) {
      add(id);
    } else if (options_.unk_token) {
      if (unk_ == kNoToken) {
        fail(ErrorCode::unsupported,
             "the tokenizer has no token for {}, and its unk_token {} is not in its vocabulary",
             in_quotes(character), in_quotes(*options_.unk_token));
      }
      pending_unk = true;
    }
  }
  if (pending_unk) add(unk_);
  const auto n = static_cast<std::int32_t>(symbols.size());
  for (std::int32_t i = 0; i < n; ++i) {
    symbols[static_cast<std::size_t>(i)].previous = i - 1;
    symbols[static_cast<std::size_t>(i)].next = i + 1 < n ? i + 1 : -1;
  }
}

bool Bpe::add_bytes(std::string_view character, Scratch& scratch) const {
  const auto token_of = [&](char byte) { return byte_tokens_[static_cast<unsigned char>(byte)]; };
  if (std::any_of(character.begin(), character.end(),
                  [&](char byte) { return token_of(byte) == kNoToken; })) {
    return false;
  }
  for (const char byte : character) scratch.symbols.push_back({token_of(byte), 0, 0});
  return true;
}

// The rank of a merge that exists and is allowed, or kNone.
std::uint32_t Bpe::rank(std::int32_t left, std::int32_t right, const Scratch& scratch) const {
  const std::uint32_t rank = merges_.rank(left, right);
  if (rank == MergeTable::kNone || !is_in(scratch.forbidden, merges_.result(rank))) return rank;
  return MergeTable::kNone;
}

// The queue holds (rank, position) in one number, the smallest first: the best merge, and among
// equals the leftmost. Entries are not removed when one of their symbols changes; a stale entry is
// recognised when its turn comes.
void Bpe::merge(Scratch& scratch) const {
  std::vector<Scratch::Symbol>& symbols = scratch.symbols;
  std::vector<std::uint64_t>& queue = scratch.queue;
  const auto symbol_at = [&](std::int32_t i) -> Scratch::Symbol& {
    return symbols[static_cast<std::size_t>(i)];
  };
  queue.clear();
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
    const std::uint32_t best = rank(symbols[i].id, symbols[i + 1].id, scratch);
    if (best != MergeTable::kNone) queue.push_back((std::uint64_t{best} << 32) | i);
  }
  std::make_heap(queue.begin(), queue.end(), std::greater<>());
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    const std::uint64_t best = queue.back();
    queue.pop_back();
    const auto at = static_cast<std::int32_t>(best & UINT32_MAX);
    const std::int32_t result = merges_.result(static_cast<std::uint32_t>(best >> 32));
    Scratch::Symbol& left = symbol_at(at);
    if (left.id == kNoToken || left.next < 0) continue;
    Scratch::Symbol& right = symbol_at(left.next);
    const std::uint32_t rank_now = rank(left.id, right.id, scratch);
    if (rank_now == MergeTable::kNone || merges_.result(rank_now) != result) continue;
    left.id = result;
    left.next = right.next;
    right.id = kNoToken;
    if (left.next >= 0) symbol_at(left.next).previous = at;
    if (left.previous >= 0) push_pair(left.previous, scratch);
    push_pair(at, scratch);
  }
}

void Bpe::push_pair(std::int32_t at, Scratch& scratch) const {
  const Scratch::Symbol& left = scratch.symbols[static_cast<std::size_t>(at)];
  if (left.next < 0) return;
  const Scratch::Symbol& right = scratch.symbols[static_cast<std::size_t>(left.next)];
  const std::uint32_t best = rank(left.id, right.id, scratch);
  if (best == MergeTable::kNone) return;
  scratch.queue.push_back((std::uint64_t{best} << 32) | static_cast<std::uint32_t>(at));
  std::push_heap(scratch.queue.begin(), scratch.queue.end(), std::greater<>());
}

}  // namespace tessera::model
