// What a mistyped word was probably meant to be.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::app {

// Letters to insert, delete, replace or swap with their neighbour to get from one word to the
// other.
int edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to the word; empty where none is near: more than a third of the letters
// would have to change (at least two may).
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace tessera::app
