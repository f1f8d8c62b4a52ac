// Steps that repeat, as CUDA graphs. Everything that changes from step to step (ids, positions,
// slots, page tables, options of draws) lies in device memory, at addresses that depend on the
// step's shape alone. So the ops of a shape are recorded once, and the next step of that shape is
// one launch:
//
//   first step of a shape    the ops run as they are
//   second                   they are recorded, and the graph is launched
//   from then on             the graph is launched
//
// A shape is a list of numbers: whatever the ops were given. Two steps with the same list run the
// same kernels with the same arguments.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/captured_graph.h"
#include "core/function_ref.h"
#include "tessera/cache_batch.h"
#include "tessera/context.h"

namespace tessera {

// Adds what the pass over a step depends on.
void add_to_shape(const CacheStep& step, std::vector<std::int64_t>& shape);
// Whether each row is the one next token of a stream: steps that come again and again.
bool is_decode_step(const CacheStep& step);

class StepGraphs {
 public:
  // Shapes that are remembered. A server sees eight numbers of streams and a few widths of page
  // tables. Each graph of a few hundred kernels takes about a megabyte.
  static constexpr std::size_t kMostShapes = 64;

  // Runs `work`, which does nothing but ops on the Context that the shape describes.
  void run(Context& ctx, std::span<const std::int64_t> shape, FunctionRef<void()> work);

  std::int64_t launches() const { return launches_; }  // of graphs, so far

 private:
  struct Entry {
    std::vector<std::int64_t> shape{};
    CapturedGraph graph{};  // from the second step on
    std::int64_t used = 0;  // the last run() that used it
  };
  Entry& entry_of(std::span<const std::int64_t> shape);
  const CapturedGraph* any_graph() const;

  std::vector<Entry> entries_;
  std::int64_t runs_ = 0, launches_ = 0;
};

}  // namespace tessera
