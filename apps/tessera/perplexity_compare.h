// tessera perplexity --compare: several settings over the same tokens, in one table, with the
// differences of each to the first in pairs of tokens.
#pragma once

#include <string>
#include <vector>

#include "perplexity_positions.h"
#include "perplexity_run.h"

namespace tessera::app {

// "weights=int4,sinks=4,window=252": each key is an option of the command, without its dashes, and
// changes what `base` says. Throws UsageError with the accepted keys.
PerplexitySetting parse_setting(const std::string& text, const PerplexitySetting& base);

// The keys that a setting takes: "model, device, ..."
std::string setting_keys();

struct CompareArgs {
  std::vector<PerplexitySetting> settings;  // two or more; the first is what others differ from
  PerplexityText text;
  PositionFiles files;
  bool json = false;
};
// Chunks and streams in one comparison are refused: their figures are not comparable.
void check_comparison(const std::vector<PerplexitySetting>& settings);
// Returns the program's status.
int compare(const CompareArgs& args);

}  // namespace tessera::app
