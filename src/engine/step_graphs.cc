#include "engine/step_graphs.h"

#include <algorithm>

namespace tessera {
namespace {

class ShapeList {
 public:
  explicit ShapeList(std::vector<std::int64_t>& numbers) : numbers_(numbers) {}

  void add(std::int64_t number) { numbers_.push_back(number); }
  void add(const Tensor& tensor) {
    add(reinterpret_cast<std::intptr_t>(tensor.data));
    add(tensor.rank);
    for (int d = 0; d < tensor.rank; ++d) {
      add(tensor.shape[d]);
      add(tensor.strides[d]);
    }
  }
  void add(const std::vector<AttentionGroup>& groups) {
    add(std::ssize(groups));
    for (const AttentionGroup& group : groups) add(group);
  }

 private:
  // Not max_keys: kernels are planned by the width of the table.
  void add(const AttentionGroup& group) {
    add(group.first_row);
    add(group.rows);
    add(group.sequences);
    add(group.q_offsets);
    for (const Tensor* tensor : {&group.pages.table, &group.pages.lengths, &group.pages.holes}) {
      add(*tensor);
    }
    add(static_cast<std::int64_t>(group.mask.kind()));
    add(group.mask.left());
    add(group.mask.right());
    add(group.mask.n_sink());
    add(group.rope_on_read ? 1 : 0);
  }

  std::vector<std::int64_t>& numbers_;
};

}  // namespace

void add_to_shape(const CacheStep& step, std::vector<std::int64_t>& shape) {
  ShapeList list(shape);
  list.add(step.tokens);
  for (const Tensor* tensor : {&step.ids, &step.positions, &step.slots, &step.rows}) {
    list.add(*tensor);
  }
  list.add(step.groups);
  list.add(step.few_rows);
  list.add(step.logits);
  list.add(step.few_logits);
  list.add(step.first_logit_row);
  list.add(step.logit_rows);
  list.add(step.logit_groups);
}

bool is_decode_step(const CacheStep& step) {
  const auto is_single = [](const AttentionGroup& group) { return group.rows == group.sequences; };
  return step.wants_all_logits() && step.few_rows == step.tokens &&
         std::all_of(step.groups.begin(), step.groups.end(), is_single);
}

// Finds it, or puts it in the place of the one that was used the longest time ago.
StepGraphs::Entry& StepGraphs::entry_of(std::span<const std::int64_t> shape) {
  const auto same = [&](const Entry& entry) {
    return std::equal(entry.shape.begin(), entry.shape.end(), shape.begin(), shape.end());
  };
  const auto found = std::find_if(entries_.begin(), entries_.end(), same);
  if (found != entries_.end()) return *found;
  if (entries_.size() == kMostShapes) {
    const auto oldest =
        std::min_element(entries_.begin(), entries_.end(),
                         [](const Entry& a, const Entry& b) { return a.used < b.used; });
    *oldest = {};
    oldest->shape.assign(shape.begin(), shape.end());
    return *oldest;
  }
  Entry& entry = entries_.emplace_back();
  entry.shape.assign(shape.begin(), shape.end());
  return entry;
}

const CapturedGraph* StepGraphs::any_graph() const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [](const Entry& entry) {
    return static_cast<bool>(entry.graph);
  });
  return found == entries_.end() ? nullptr : &found->graph;
}

void StepGraphs::run(Context& ctx, std::span<const std::int64_t> shape, FunctionRef<void()> work) {
  Entry& entry = entry_of(shape);
  const bool is_new = entry.used == 0;
  entry.used = ++runs_;
  if (is_new) return work();
  if (!entry.graph) entry.graph = capture(ctx, work, any_graph());
  entry.graph.launch(ctx);
  ++launches_;
}

}  // namespace tessera
