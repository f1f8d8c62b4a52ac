// Bias, penalties and the counts that penalties use, on the CPU. src/ops has checked the arguments.
#pragma once

#include "tessera/adjust_logits.h"
#include "tessera/token_counts.h"

namespace tessera::cpu {

void adjust_logits(Context& ctx, const AdjustLogitsArgs& args);
void fill_counts(const FillCountsArgs& args);
void count_tokens(const CountTokensArgs& args);

}  // namespace tessera::cpu
