// tessera perplexity --by-position: nll along the text, as a table (CSV) and as a plot (SVG).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perplexity_run.h"

namespace tessera::app {

struct PositionFiles {
  std::vector<std::string> paths;  // each ends in .csv or .svg
  std::int64_t bucket = 0;         // positions that share a point; 0: about 40 points
};
// Refuses other endings, what cannot be written to, and the file of the text: before the work, not
// after it. `text`: its name, - for standard input.
void check_position_files(const PositionFiles& files, const std::string& text);

// One setting's part of the files.
struct PositionSeries {
  std::string label;
  std::vector<PositionBucket> nll;
  std::vector<PositionBucket> difference;  // to the first series; empty for the first
};
struct PositionPlot {
  std::string title, subtitle;
  std::vector<PositionSeries> series;  // at least one
};

// setting,begin,end,tokens,nll,nll_stderr,difference,difference_stderr
std::string to_csv(const PositionPlot& plot);
// nll above; below, with several settings, the differences to the first and their standard errors.
std::string to_svg(const PositionPlot& plot);

// Writes all files. Nothing is done where there are none.
void write_positions(const PositionFiles& files, const PerplexityText& text,
                     const std::vector<ScoredSetting>& scored);

}  // namespace tessera::app
