#include "random/ops.h"

namespace tessera::test {
namespace {

constexpr RandomOp kRandomOps[] = {
    {"attention", 6, random_attention},
    {"attention_backward", 3, random_attention_backward},
    {"linear", 5, random_linear},
    {"gated_linear", 2, random_gated_linear},
    {"norm", 1, random_norm},
    {"rotary_append", 1, random_rotary_append},
    {"sample", 1, random_sample},
    {"quantize", 1, random_quantize},
    {"append_attention", 2, random_append_attention},
    {"fault", 0, random_fault},
};

}  // namespace

std::span<const RandomOp> random_ops() { return kRandomOps; }

}  // namespace tessera::test
