// What a mistyped word probably means.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::app {

// Letters to insert, delete, replace or swap with their neighbour to get from one word to the
// other.
int edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to the word. Empty where none is near: a third of the letters may differ,
// and always two.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace tessera::app
