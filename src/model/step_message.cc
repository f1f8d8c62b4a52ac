#include "model/step_message.h"

#include <algorithm>
#include <cstdint>

namespace tessera::model {
namespace {

// Bytes from the first element of a view to the end of the last.
std::int64_t reach(const Tensor& tensor) {
  std::int64_t last = 0;
  for (int d = 0; d < tensor.rank; ++d) {
    if (tensor.shape[d] == 0) return 0;
    last += (tensor.shape[d] - 1) * tensor.strides[d];
  }
  return (last + 1) * size_of(tensor.dtype);
}

template <typename F>
void for_each_tensor(const CacheStep& step, F&& visit) {
  for (const Tensor* tensor : {&step.ids, &step.positions, &step.slots, &step.logit_rows}) {
    visit(*tensor);
  }
  for (const auto* groups : {&step.groups, &step.logit_groups}) {
    for (const AttentionGroup& group : *groups) {
      visit(group.q_offsets);
      visit(group.pages.table);
      visit(group.pages.lengths);
      visit(group.pages.holes);
    }
  }
}

// The view with its place in the block instead of an address.
void put_tensor(MessageWriter& message, const Tensor& tensor, const StepBlock& block) {
  message.put(tensor.rank);
  if (!tensor.defined()) return;
  message.put(static_cast<char*>(tensor.data) - block.begin);
  message.put(tensor.dtype);
  message.put(tensor.shape);
  message.put(tensor.strides);
}

Tensor get_tensor(MessageReader& message, char* block, Device device) {
  const int rank = message.get<int>();
  if (rank == 0) return {};
  char* data = block + message.get<std::ptrdiff_t>();
  const auto dtype = message.get<DType>();
  const auto shape = message.get<decltype(Tensor::shape)>();
  const auto strides = message.get<decltype(Tensor::strides)>();
  const auto dims = static_cast<std::size_t>(rank);
  return {data, dtype, std::span(shape).first(dims), std::span(strides).first(dims), device};
}

void put_groups(MessageWriter& message, const std::vector<AttentionGroup>& groups,
                const StepBlock& block) {
  message.put(std::ssize(groups));
  for (const AttentionGroup& group : groups) {
    message.put(group.first_row);
    message.put(group.rows);
    message.put(group.sequences);
    message.put(group.rope_on_read);
    message.put(group.many_queries);
    message.put(group.max_keys);
    message.put(group.mask.kind());
    message.put(group.mask.left());
    message.put(group.mask.right());
    for (const Tensor* tensor :
         {&group.q_offsets, &group.pages.table, &group.pages.lengths, &group.pages.holes}) {
      put_tensor(message, *tensor, block);
    }
  }
}

// The mask of a policy: never a pattern of blocks; sinks are expressed by pages and holes.
Mask get_mask(MessageReader& message) {
  const auto kind = message.get<Mask::Kind>();
  const auto left = message.get<std::int64_t>(), right = message.get<std::int64_t>();
  switch (kind) {
    case Mask::Kind::full:
      return Mask::full();
    case Mask::Kind::causal:
      return Mask::causal();
    case Mask::Kind::window:
      return Mask::window(left, right);
    default:
      fail(ErrorCode::unsupported, "a step with such a mask cannot be sent to another process");
  }
}

std::vector<AttentionGroup> get_groups(MessageReader& message, char* block, Device device) {
  std::vector<AttentionGroup> groups(static_cast<std::size_t>(message.get<std::ptrdiff_t>()));
  for (AttentionGroup& group : groups) {
    group.first_row = message.get<std::int64_t>();
    group.rows = message.get<std::int64_t>();
    group.sequences = message.get<std::int64_t>();
    group.rope_on_read = message.get<bool>();
    group.many_queries = message.get<bool>();
    group.max_keys = message.get<std::int64_t>();
    group.mask = get_mask(message);
    for (Tensor* tensor :
         {&group.q_offsets, &group.pages.table, &group.pages.lengths, &group.pages.holes}) {
      *tensor = get_tensor(message, block, device);
    }
  }
  return groups;
}

}  // namespace

void MessageWriter::append(std::span<const std::byte> bytes) {
  const std::size_t at = bytes_.size();
  bytes_.resize(at + bytes.size());
  std::memcpy(bytes_.data() + at, bytes.data(), bytes.size());
}

StepBlock block_of(const CacheStep& step) {
  char *begin = nullptr, *end = nullptr;
  for_each_tensor(step, [&](const Tensor& tensor) {
    if (!tensor.defined() || tensor.data == nullptr) return;
    char* first = static_cast<char*>(tensor.data);
    begin = begin == nullptr ? first : std::min(begin, first);
    end = std::max(end, first + reach(tensor));
  });
  return {begin, end - begin};
}

void write_step(MessageWriter& message, const CacheStep& step, const StepBlock& block) {
  for (const std::int64_t number :
       {step.tokens, step.few_rows, step.logits, step.few_logits, step.first_logit_row}) {
    message.put(number);
  }
  message.put(step.batch_invariant);
  for (const Tensor* tensor : {&step.ids, &step.positions, &step.slots, &step.logit_rows}) {
    put_tensor(message, *tensor, block);
  }
  put_groups(message, step.groups, block);
  put_groups(message, step.logit_groups, block);
}

CacheStep read_step(MessageReader& message, const PagePool& pool, char* block) {
  CacheStep step;
  step.pool = &pool;
  for (std::int64_t* number :
       {&step.tokens, &step.few_rows, &step.logits, &step.few_logits, &step.first_logit_row}) {
    *number = message.get<std::int64_t>();
  }
  step.batch_invariant = message.get<bool>();
  for (Tensor* tensor : {&step.ids, &step.positions, &step.slots, &step.logit_rows}) {
    *tensor = get_tensor(message, block, pool.device());
  }
  step.groups = get_groups(message, block, pool.device());
  step.logit_groups = get_groups(message, block, pool.device());
  return step;
}

}  // namespace tessera::model
