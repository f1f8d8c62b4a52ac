// The subcommands of bench_gpu. Each declares its options and the function that runs it.
#pragma once

#include <CLI/CLI.hpp>

namespace tessera::bench {

void add_fused_linear(CLI::App& app);
void add_linear(CLI::App& app);
void add_attention(CLI::App& app);
void add_backward(CLI::App& app);
void add_decode(CLI::App& app);
void add_norm(CLI::App& app);
void add_quantize(CLI::App& app);
void add_rotary_append(CLI::App& app);
void add_sample(CLI::App& app);
void add_select(CLI::App& app);

}  // namespace tessera::bench
