// Cutting texts: trimming, splitting, replacing, slicing. Each byte keeps its author.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/chat/value.h"

namespace tessera::model::chat {

enum class Side : std::uint8_t { left, right, both };
// The text without the given characters at its ends, or without white space if none are given.
Text stripped(Run& run, const Text& text, const Text* characters, Side side);

// At most `most` cuts; -1: any number. `from_right`: starts from the right.
std::vector<Value> split_at_spaces(Run& run, const Text& text, std::int64_t most, bool from_right);
std::vector<Value> split_at(Run& run, const Text& text, const Text& separator, std::int64_t most,
                            bool from_right);
std::vector<Value> split_lines(Run& run, const Text& text, bool keep_ends);

Text replaced(Run& run, const Text& text, const Text& old, const Text& by, std::int64_t most);
Text joined_with(Run& run, const Text& between, const std::vector<Text>& parts);

// The bounds of a slice; a missing one is none.
struct SliceBounds {
  std::optional<std::int64_t> begin, end, step;
};
// The places that a slice of `size` things takes, in its order.
std::vector<std::size_t> slice_places(Run& run, const SliceBounds& bounds, std::size_t size);
Text slice_text(Run& run, const Text& text, const SliceBounds& bounds);
// One character; a negative index counts from the end. None outside the text.
std::optional<Text> character_at(Run& run, const Text& text, std::int64_t index);

// Where characters begin, and the end.
std::vector<std::size_t> character_starts(Run& run, const Text& text);

}  // namespace tessera::model::chat
