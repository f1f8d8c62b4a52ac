#include "model/tokenizer/added_tokens.h"

#include <algorithm>

#include "core/fail.h"
#include "model/tokenizer/unicode.h"

namespace tessera::model {
namespace {

std::int32_t child(const std::vector<std::pair<unsigned char, std::int32_t>>& next, char byte) {
  const auto key = static_cast<unsigned char>(byte);
  const auto found = std::lower_bound(next.begin(), next.end(), std::pair{key, std::int32_t{-1}});
  return found != next.end() && found->first == key ? found->second : -1;
}

// The first byte of the character that ends before `at`.
std::size_t previous_character(std::string_view text, std::size_t at) {
  do --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

std::size_t skip_white_space_back(std::string_view text, std::size_t at, std::size_t least) {
  while (at > least) {
    std::size_t begin = previous_character(text, at);
    const std::size_t start = begin;
    if (!is_white_space(next_code_point(text, begin))) break;
    at = start;
  }
  return std::max(at, least);
}

std::size_t skip_white_space(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    std::size_t next = at;
    if (!is_white_space(next_code_point(text, next))) break;
    at = next;
  }
  return at;
}

}  // namespace

std::vector<Span>::const_iterator Foreign::first_touched(Span span) const {
  const auto found =
      std::partition_point(spans.begin(), spans.end(), [&](Span s) { return s.end <= span.begin; });
  return found != spans.end() && found->begin < span.end ? found : spans.end();
}

bool Foreign::forbids(std::int32_t id, Span span) const {
  if (forbidden == nullptr) return false;
  const auto touched = first_touched(span);
  if (touched == spans.end()) return false;
  const bool inside = touched->begin <= span.begin && span.end <= touched->end;
  return !inside || forbidden->has(id);
}

void TokenFinder::add(std::string_view written, const AddedToken& token) {
  std::size_t node = 0;
  for (const char byte : written) {
    std::int32_t to = child(nodes_[node].next, byte);
    if (to < 0) {
      to = static_cast<std::int32_t>(nodes_.size());
      auto& next = nodes_[node].next;
      const std::pair entry{static_cast<unsigned char>(byte), to};
      next.insert(std::lower_bound(next.begin(), next.end(), entry), entry);
      nodes_.emplace_back();
    }
    node = static_cast<std::size_t>(to);
  }
  nodes_[node].token = static_cast<std::int32_t>(tokens_.size());
  tokens_.push_back(token);
  if (token.single_word && !word_character_) {
    word_character_ = Regex::pcre(R"(\A[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}])", "");
  }
}

TokenFinder::Found TokenFinder::longest_at(std::string_view text, std::size_t at,
                                           const Foreign& foreign, Effort& effort) const {
  const std::size_t begin = at;
  Found found{at, -1};
  std::int32_t node = 0;
  while (at < text.size()) {
    node = child(nodes_[static_cast<std::size_t>(node)].next, text[at]);
    if (node < 0) break;
    ++at;
    const std::int32_t token = nodes_[static_cast<std::size_t>(node)].token;
    if (token < 0) continue;
    const std::int32_t id = tokens_[static_cast<std::size_t>(token)].id;
    if (!foreign.forbids(id, {begin, at})) found = {at, token};
  }
  if (!effort.spend(at - begin + 1)) {
    fail(ErrorCode::unsupported,
         "the added tokens take more than {} steps for each byte of this text",
         Effort::kStepsPerByte);
  }
  return found;
}

// Whether neither the character before nor the one after it belongs to a word.
bool TokenFinder::stands_alone(std::string_view text, Span found, Effort& effort) const {
  const auto is_word = [&](std::string_view character) {
    std::vector<Span> matches;
    word_character_->find_all(character, effort, matches);
    return !matches.empty();
  };
  if (found.begin > 0) {
    const std::size_t before = previous_character(text, found.begin);
    if (is_word(text.substr(before, found.begin - before))) return false;
  }
  std::size_t after = found.end;
  if (after < text.size()) {
    next_code_point(text, after);
    if (is_word(text.substr(found.end, after - found.end))) return false;
  }
  return true;
}

std::vector<Segment> TokenFinder::split(std::string_view text, const Foreign& foreign,
                                        Effort& effort) const {
  effort.allow(text.size());
  std::vector<Segment> segments;
  std::size_t done = 0;
  std::size_t white_end = 0;  // of the last run of white space that was scanned
  for (std::size_t at = 0; at < text.size();) {
    const Found found = longest_at(text, at, foreign, effort);
    if (found.token < 0) {
      ++at;
      continue;
    }
    Span span{at, found.end};
    at = found.end;
    const AddedToken& token = tokens_[static_cast<std::size_t>(found.token)];
    if (token.single_word && !stands_alone(text, span, effort)) continue;
    if (token.lstrip) span.begin = skip_white_space_back(text, span.begin, done);
    // Tokens of white space may lie inside the run that an earlier token has taken.
    if (token.rstrip && span.end >= white_end) white_end = skip_white_space(text, span.end);
    if (token.rstrip) span.end = white_end;
    if (done < span.begin) segments.push_back({done, span.begin, kNoToken});
    segments.push_back({span.begin, span.end, token.id});
    done = span.end;
  }
  if (done < text.size()) segments.push_back({done, text.size(), kNoToken});
  return segments;
}

}  // namespace tessera::model
