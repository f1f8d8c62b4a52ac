// The ops that are tried. A new op is one file with one function, one declaration and one row in
// the table of ops.cc.
#pragma once

#include <span>

#include "random/trial.h"

namespace tessera::test {

void random_append_attention(Trial& trial);
void random_attention(Trial& trial);
void random_attention_backward(Trial& trial);
void random_gated_linear(Trial& trial);
void random_linear(Trial& trial);
void random_norm(Trial& trial);
void random_quantize(Trial& trial);
void random_rotary_append(Trial& trial);
void random_sample(Trial& trial);
// Fails or hangs as its line says: proves that the program would notice.
void random_fault(Trial& trial);

struct RandomOp {
  const char* name;
  int weight;  // how often it is drawn; 0: only by --case
  // Draws a call, runs it by each kernel that takes it, and says what it expects.
  void (*run)(Trial& trial);
};
std::span<const RandomOp> random_ops();

}  // namespace tessera::test
