#include "suggestion.h"

#include <algorithm>

namespace tessera::app {

int edit_distance(std::string_view a, std::string_view b) {
  // rows[i][j]: from the first i letters of a to the first j of b
  std::vector<std::vector<int>> rows(a.size() + 1, std::vector<int>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        rows[i][j] = static_cast<int>(i + j);
        continue;
      }
      const int replace = rows[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      rows[i][j] = std::min({replace, rows[i - 1][j] + 1, rows[i][j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
      }
    }
  }
  return rows[a.size()][b.size()];
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  const int limit = std::max(2, static_cast<int>(word.size()) / 3);
  std::string best;
  int least = limit + 1;
  for (const std::string& candidate : candidates) {
    const int distance = edit_distance(word, candidate);
    // The beginning of a candidate is not a typo, but just as clear.
    const bool begins = word.size() >= 3 && candidate.starts_with(word);
    const int score = begins ? 1 : distance;
    if (score < least) {
      least = score;
      best = candidate;
    }
  }
  return best;
}

}  // namespace tessera::app
