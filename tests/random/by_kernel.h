// Calls by one kernel, by name: all kernels of a device that take a call, not only the chosen one.
// On the CPU there is one name, because shapes decide alone there.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "random/trial.h"
#include "tessera/attention.h"

namespace tessera::test {

std::vector<std::string> attention_kernel_names(Context& ctx, const AttentionArgs& args);
void attention_by(Context& ctx, const std::string& kernel, const AttentionArgs& args);

std::vector<std::string> backward_kernel_names(Context& ctx, const AttentionBackwardArgs& args);
void backward_by(Context& ctx, const std::string& kernel, const AttentionBackwardArgs& args);

// Calls run(), by the chosen linear kernel and then by each other one that can run it, and check()
// after each, while the kernel is still forced. `op` is the name in the trace.
void by_every_linear_kernel(Trial& trial, const std::string& op, const std::function<void()>& run,
                            const std::function<void()>& check);

}  // namespace tessera::test
