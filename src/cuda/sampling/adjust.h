// Bias, penalties and their counts on a GPU. src/ops has checked the arguments.
#pragma once

#include "tessera/adjust_logits.h"
#include "tessera/token_counts.h"

namespace tessera::cuda {

void adjust_logits(Context& ctx, const AdjustLogitsArgs& args);
void fill_counts(Context& ctx, const FillCountsArgs& args);
void count_tokens(Context& ctx, const CountTokensArgs& args);

}  // namespace tessera::cuda
