// Checks and counts shared by attention() and attention_backward().
#pragma once

#include <cstdint>
#include <string>

#include "ops/op_scope.h"
#include "tessera/attention.h"

namespace tessera {

// Checks everything that can be wrong with a call, before anything is written.
void check_attention(const OpScope& op, const AttentionArgs& args);

// The two counts below use the lengths as far as the host knows them. It does not read lengths on a
// GPU: there, the rows of a ragged batch count as divided evenly, and page tables as full.
//
// Pairs of query and key that the mask allows, over all sequences and query heads.
std::int64_t visible_pairs(const AttentionArgs& args);
// Keys that are in use, over all sequences and key heads.
std::int64_t key_rows(const AttentionArgs& args);
// "q f32[1, 128, 8, 64] k f32[1, 128, 2, 64] causal", and other options that are on.
std::string describe(const AttentionArgs& args);

}  // namespace tessera
