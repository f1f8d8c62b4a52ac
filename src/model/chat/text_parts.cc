#include "model/chat/text_parts.h"

#include <algorithm>

#include "model/chat/text_case.h"
#include "model/tokenizer/unicode.h"

namespace tessera::model::chat {
namespace {

std::u32string code_points(std::string_view bytes) {
  std::u32string all;
  for (std::size_t at = 0; at < bytes.size();) all += next_code_point(bytes, at);
  return all;
}

// The begin of the character that ends at `end`.
std::size_t character_before(std::string_view bytes, std::size_t end) {
  std::size_t begin = end - 1;
  while ((static_cast<unsigned char>(bytes[begin]) & 0xC0) == 0x80) --begin;
  return begin;
}

// The places of separators that do not overlap, found from the left or from the right.
std::vector<std::size_t> separators(Run& run, std::string_view text, std::string_view separator,
                                    std::int64_t most, bool from_right) {
  run.work_on(text.size());
  std::vector<std::size_t> found;
  const auto is_enough = [&] {
    return most >= 0 && static_cast<std::int64_t>(found.size()) >= most;
  };
  if (!from_right) {
    for (std::size_t at = 0; !is_enough();) {
      at = find_in(text, separator, at);
      if (at == std::string_view::npos) break;
      found.push_back(at);
      at += separator.size();
    }
    return found;
  }
  // Backwards is forwards in the reversed texts.
  const std::string reversed(text.rbegin(), text.rend());
  const std::string reversed_separator(separator.rbegin(), separator.rend());
  found = separators(run, reversed, reversed_separator, most, false);
  for (std::size_t& at : found) at = text.size() - at - separator.size();
  std::reverse(found.begin(), found.end());
  return found;
}

}  // namespace

Text stripped(Run& run, const Text& text, const Text* characters, Side side) {
  std::u32string wanted =
      characters == nullptr ? std::u32string() : code_points(characters->view());
  std::sort(wanted.begin(), wanted.end());
  const auto goes = [&](char32_t c) {
    return characters == nullptr ? is_space(c)
                                 : std::binary_search(wanted.begin(), wanted.end(), c);
  };
  const std::string_view bytes = text.view();
  run.work_on(bytes.size() + wanted.size());
  std::size_t begin = 0, end = bytes.size();
  while (side != Side::right && begin < end) {
    std::size_t next = begin;
    if (!goes(next_code_point(bytes, next))) break;
    begin = next;
  }
  while (side != Side::left && end > begin) {
    const std::size_t last = character_before(bytes, end);
    std::size_t at = last;
    if (!goes(next_code_point(bytes, at))) break;
    end = last;
  }
  return part(run, text, begin, end);
}

std::vector<Value> split_at_spaces(Run& run, const Text& text, std::int64_t most, bool from_right) {
  const std::string_view bytes = text.view();
  run.work_on(bytes.size());
  std::vector<Span> words;
  bool in_word = false;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t begin = at;
    const bool space = is_space(next_code_point(bytes, at));
    if (!space && !in_word) words.push_back({begin, begin});
    if (!space) words.back().end = at;
    in_word = !space;
  }
  // The rest, which is not cut any more, keeps the white space inside it and at its far end.
  const std::size_t cuts = static_cast<std::size_t>(most);
  if (most >= 0 && words.size() > cuts) {
    if (from_right) {
      words.erase(words.begin(), words.end() - static_cast<std::ptrdiff_t>(cuts) - 1);
      words.front().begin = 0;
    } else {
      words.resize(cuts + 1);
      words.back().end = bytes.size();
    }
  }
  std::vector<Value> parts;
  parts.reserve(words.size());
  for (const Span& word : words) parts.emplace_back(part(run, text, word.begin, word.end));
  return parts;
}

std::vector<Value> split_at(Run& run, const Text& text, const Text& separator, std::int64_t most,
                            bool from_right) {
  if (separator.empty()) run.refuse("a string cannot be split at an empty one");
  std::vector<Value> parts;
  std::size_t begin = 0;
  for (const std::size_t at : separators(run, text.view(), separator.view(), most, from_right)) {
    parts.emplace_back(part(run, text, begin, at));
    begin = at + separator.size();
  }
  parts.emplace_back(part(run, text, begin, text.size()));
  return parts;
}

std::vector<Value> split_lines(Run& run, const Text& text, bool keep_ends) {
  const auto ends_line = [](char32_t c) {
    return (c >= '\n' && c <= '\r') || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
  };
  const std::string_view bytes = text.view();
  run.work_on(bytes.size());
  std::vector<Value> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t end = at;
    const char32_t c = next_code_point(bytes, at);
    if (!ends_line(c)) continue;
    if (c == '\r' && at < bytes.size() && bytes[at] == '\n') ++at;
    lines.emplace_back(part(run, text, begin, keep_ends ? at : end));
    begin = at;
  }
  if (begin < bytes.size()) lines.emplace_back(part(run, text, begin, bytes.size()));
  return lines;
}

Text replaced(Run& run, const Text& text, const Text& old, const Text& by, std::int64_t most) {
  TextBuilder out(run);
  std::size_t begin = 0;
  if (old.empty()) {  // before each character, and at the end
    const std::vector<std::size_t> starts = character_starts(run, text);
    std::int64_t count = 0;
    for (std::size_t i = 0; i < starts.size(); ++i) {
      if (most < 0 || count++ < most) out.add(by);
      if (i + 1 < starts.size()) out.add(text, starts[i], starts[i + 1]);
    }
    return out.take();
  }
  for (const std::size_t at : separators(run, text.view(), old.view(), most, false)) {
    out.add(text, begin, at);
    out.add(by);
    begin = at + old.size();
  }
  out.add(text, begin, text.size());
  return out.take();
}

Text joined_with(Run& run, const Text& between, const std::vector<Text>& parts) {
  TextBuilder out(run);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out.add(between);
    out.add(parts[i]);
  }
  return out.take();
}

std::vector<std::size_t> slice_places(Run& run, const SliceBounds& bounds, std::size_t size) {
  const auto length = static_cast<std::int64_t>(size);
  const std::int64_t step = bounds.step.value_or(1);
  if (step == 0) run.refuse("the step of a slice is zero");
  // Backwards, the place before the first is an end too.
  const std::int64_t low = step < 0 ? -1 : 0, high = step < 0 ? length - 1 : length;
  const auto place = [&](const std::optional<std::int64_t>& bound, std::int64_t otherwise) {
    if (!bound) return otherwise;
    // A bound far below zero stays there.
    const std::int64_t at = *bound < 0 ? std::max(*bound, -length - 1) + length : *bound;
    return std::clamp(at, low, high);
  };
  const std::int64_t begin = place(bounds.begin, step < 0 ? high : low);
  const std::int64_t end = place(bounds.end, step < 0 ? low : high);
  std::vector<std::size_t> places;
  // A step over everything is as good as any larger one.
  const std::int64_t stride = std::clamp(step, -length - 1, length + 1);
  for (std::int64_t at = begin; stride < 0 ? at > end : at < end; at += stride) {
    places.push_back(static_cast<std::size_t>(at));
  }
  run.step(places.size() / 8);
  return places;
}

std::vector<std::size_t> character_starts(Run& run, const Text& text) {
  const std::string_view bytes = text.view();
  run.step(1 + bytes.size() / 16);
  std::vector<std::size_t> starts;
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    if ((static_cast<unsigned char>(bytes[at]) & 0xC0) != 0x80) starts.push_back(at);
  }
  starts.push_back(bytes.size());
  return starts;
}

Text slice_text(Run& run, const Text& text, const SliceBounds& bounds) {
  const std::vector<std::size_t> starts = character_starts(run, text);
  const std::vector<std::size_t> places = slice_places(run, bounds, starts.size() - 1);
  if (places.empty()) return {};
  if (bounds.step.value_or(1) == 1) {
    return part(run, text, starts[places.front()], starts[places.back() + 1]);
  }
  TextBuilder out(run);
  for (const std::size_t place : places) out.add(text, starts[place], starts[place + 1]);
  return out.take();
}

std::optional<Text> character_at(Run& run, const Text& text, std::int64_t index) {
  const auto length = static_cast<std::int64_t>(text.characters());
  run.work_on(text.size());
  if (index < -length || index >= length) return std::nullopt;
  if (index < 0) index += length;
  if (text.is_ascii()) {
    const auto at = static_cast<std::size_t>(index);
    return part(run, text, at, at + 1);
  }
  const std::vector<std::size_t> starts = character_starts(run, text);
  const auto at = static_cast<std::size_t>(index);
  return part(run, text, starts[at], starts[at + 1]);
}

}  // namespace tessera::model::chat
