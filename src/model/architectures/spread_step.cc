#include "model/architectures/spread_step.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/fail.h"
#include "model/architectures/spread_sequence.h"
#include "tessera/buffer.h"

namespace tessera {
namespace {

// The keys that a query sees: [begin, end) of its sequence. Its own key is the one before `end`.
struct Seen {
  std::int64_t begin, end;
};
Seen seen_by(std::int64_t query, const Mask& mask, std::int64_t window) {
  std::int64_t left = mask.kind() == Mask::Kind::window ? mask.left() : -1;
  if (window > 0) left = left < 0 ? window - 1 : std::min(left, window - 1);
  return {left < 0 ? 0 : std::max<std::int64_t>(0, query - left), query + 1};
}

// The queries of a group's sequence `index`: [begin, end) of the group's rows. The group's tensors
// are on the host.
Seen queries_of(const AttentionGroup& group, std::int64_t index) {
  if (group.q_offsets.defined()) {
    const auto* offsets = group.q_offsets.ptr<const std::int32_t>();
    return {offsets[index], offsets[index + 1]};
  }
  const std::int64_t each = group.rows / group.sequences;
  return {index * each, (index + 1) * each};
}

// A group whose small tensors the host can read.
AttentionGroup on_host(const CacheStep& step, AttentionGroup group) {
  for (Tensor* tensor :
       {&group.q_offsets, &group.pages.table, &group.pages.lengths, &group.pages.holes}) {
    *tensor = step.on_host(*tensor);
  }
  return group;
}

}  // namespace

// ---- which rows ---------------------------------------------------------------------------------

SpreadStep::SpreadStep(Context& ctx, int ranks, const ForwardArgs& args,
                       std::span<const std::int64_t> windows)
    : whole_(*args.step),
      share_(whole_.pool->options().share()),
      local_(whole_),
      frame_(ctx.workspace()),
      device_(ctx.device()) {
  if (share_.size != ranks) {
    fail(ErrorCode::invalid_argument,
         "a cache of {} processes was given to a model of {}; make it with make_cache() or "
         "make_pool()",
         share_.size, ranks);
  }
  const std::int64_t page_size = whole_.pool->options().page_size;
  const auto* slots = whole_.on_host(whole_.slots).ptr<const std::int32_t>();
  std::vector<std::int32_t> local_slots;
  std::vector<std::int64_t> rows_of(static_cast<std::size_t>(ranks), 0);
  for (std::int64_t row = 0; row < whole_.tokens; ++row) {
    const std::int64_t page = slots[row] < 0 ? -1 : slots[row] / page_size;
    const bool is_own = page >= 0 && share_.is_own(page);
    if (page >= 0) ++rows_of[static_cast<std::size_t>(share_.owner(page))];
    if (is_own) own_rows_.push_back(row);
    local_slots.push_back(
        is_own ? static_cast<std::int32_t>(share_.local(page) * page_size + slots[row] % page_size)
               : -1);
  }
  const bool is_one_sequence = whole_.groups.size() == 1 && whole_.groups[0].sequences == 1;
  splits_ = is_one_sequence && !args.observe &&
            *std::min_element(rows_of.begin(), rows_of.end()) >= CacheBatch::kFewTokens;
  std::vector<std::int64_t> positions;
  std::vector<std::int32_t> ids;
  if (splits_) {  // this rank's rows
    std::vector<std::int32_t> own_slots;
    for (const std::int64_t row : own_rows_) {
      ids.push_back(whole_.on_host(whole_.ids).ptr<const std::int32_t>()[row]);
      positions.push_back(whole_.on_host(whole_.positions).ptr<const std::int64_t>()[row]);
      own_slots.push_back(local_slots[static_cast<std::size_t>(row)]);
    }
    local_slots = std::move(own_slots);
  }
  const std::int64_t positions_at = add(positions), ids_at = add(ids), slots_at = add(local_slots);

  write_calls(windows);
  upload(ctx);
  const auto rows = std::ssize(local_slots);
  local_.slots = small(slots_at, DType::i32, {rows});
  if (!splits_) return;
  local_.tokens = rows;
  local_.ids = small(ids_at, DType::i32, {rows});
  local_.positions = small(positions_at, DType::i64, {rows});
  local_.groups[0].rows = rows;
  local_.few_rows = std::min(local_.few_rows, rows);
}

// ---- what the calls of attention() see ----------------------------------------------------------

// For every window that a layer has.
void SpreadStep::write_calls(std::span<const std::int64_t> windows) {
  std::vector<std::int64_t> different(windows.begin(), windows.end());
  different.push_back(0);
  std::sort(different.begin(), different.end());
  different.erase(std::unique(different.begin(), different.end()), different.end());
  if (splits_) {
    const AttentionGroup group = on_host(whole_, whole_.groups[0]);
    const SpreadSequence sequence(group, 0, whole_.pool->options().page_size, share_);
    for (int r = 0; r < share_.size; ++r) {
      most_pages_ = std::max<std::int64_t>(most_pages_, std::ssize(sequence.own_pages(r)));
    }
    const std::vector<std::int32_t> own = sequence.own_pages(share_.rank);
    own_pages_ = std::ssize(own);
    own_page_list_ = add(own);
    std::vector<std::int32_t> in_order(static_cast<std::size_t>(most_pages_));
    std::iota(in_order.begin(), in_order.end(), 0);
    block_table_ = add(in_order);
    for (const std::int64_t window : different) write_ring(sequence, window);
  } else {
    for (const std::int64_t window : different) {
      write_whole_rows(whole_.groups, window, false);
      write_whole_rows(whole_.logit_groups, window, true);
    }
  }
}

// Each row is a sequence of one query over this rank's keys.
void SpreadStep::write_whole_rows(std::span<const AttentionGroup> groups, std::int64_t window,
                                  bool of_logits) {
  if (groups.empty()) return;
  Numbers numbers;
  for (const AttentionGroup& group : groups) {
    numbers.width = std::max(numbers.width, group.pages.table.size(1));
  }
  for (const AttentionGroup& of_device : groups) {
    const AttentionGroup group = on_host(whole_, of_device);
    for (std::int64_t s = 0; s < group.sequences; ++s) {
      const SpreadSequence sequence(group, s, whole_.pool->options().page_size, share_);
      const Seen queries = queries_of(group, s);
      std::vector<std::int32_t> own = sequence.own_pages(share_.rank);
      own.resize(static_cast<std::size_t>(numbers.width));
      for (std::int64_t i = queries.begin; i < queries.end; ++i) {
        numbers.table.insert(numbers.table.end(), own.begin(), own.end());
        if (sequence.keys() == 0) {  // a padding row has no keys
          numbers.lengths.push_back(0);
          numbers.holes.insert(numbers.holes.end(), {0, 0});
          continue;
        }
        const std::int64_t query = sequence.keys() - (queries.end - i);
        const Seen seen = seen_by(query, group.mask, window);
        const std::int64_t begin = sequence.slots_before(sequence.slot(seen.begin), share_.rank);
        const std::int64_t end = sequence.slots_before(sequence.slot(seen.end), share_.rank);
        numbers.lengths.push_back(static_cast<std::int32_t>(end - begin));
        numbers.holes.insert(numbers.holes.end(), {0, static_cast<std::int32_t>(begin)});
      }
    }
  }
  keep(numbers, {.window = window, .of_logits = of_logits});
}

// This rank's rows against the pages of each rank, in the order in which these come by. Without a
// window, rows of one page share a sequence: they see another rank's keys up to their page, and
// those of their own rank up to themselves. With a window, each row is a sequence of its own.
void SpreadStep::write_ring(const SpreadSequence& sequence, std::int64_t window) {
  const std::int64_t page_size = whole_.pool->options().page_size;
  const Mask& mask = whole_.groups[0].mask;
  const bool has_window = window > 0 || mask.kind() == Mask::Kind::window;
  std::vector<std::int64_t> slots;  // of the sequence
  for (const std::int64_t row : own_rows_) {
    slots.push_back(sequence.slot(sequence.keys() - whole_.tokens + row));
  }
  for (int turn = 0; turn < share_.size; ++turn) {
    const int owner = (share_.rank + share_.size - turn) % share_.size;
    Numbers numbers;
    numbers.width = most_pages_;
    numbers.offsets.push_back(0);
    for (std::size_t i = 0; i < slots.size();) {
      std::int64_t begin = 0, end = 0;
      if (has_window) {
        const Seen seen = seen_by(slots[i] - sequence.slot(0), mask, window);
        begin = sequence.slots_before(sequence.slot(seen.begin), owner);
        end = sequence.slots_before(sequence.slot(seen.end), owner);
        numbers.holes.insert(numbers.holes.end(), {0, static_cast<std::int32_t>(begin)});
        ++i;
      } else {
        const std::int64_t page = slots[i] / page_size;
        while (i < slots.size() && slots[i] / page_size == page) ++i;
        end = sequence.slots_before(turn == 0 ? slots[i - 1] + 1 : page * page_size, owner);
      }
      numbers.offsets.push_back(static_cast<std::int32_t>(i));
      numbers.lengths.push_back(static_cast<std::int32_t>(end - begin));
    }
    keep(numbers, {.window = window, .turn = turn});
  }
}

// ---- small tensors ------------------------------------------------------------------------------

void SpreadStep::upload(Context& ctx) {
  // The device's copy. The host's lives as long as this object, and copying reads it at once.
  const std::int64_t bytes = std::ssize(small_) * 4;
  data_ = reinterpret_cast<char*>(small_.data());
  if (!device_.is_cpu()) {
    data_ = frame_.take<char>(bytes);
    if (!ctx.workspace().is_counting()) {
      copy_bytes(ctx, data_, device_, small_.data(), Device::cpu(), bytes);
    }
  }
}

template <typename T>
std::int64_t SpreadStep::add(const std::vector<T>& numbers) {
  const auto place = small_.size(), size = numbers.size() * (sizeof(T) / 4);
  small_.resize(place + size);
  if (!numbers.empty()) std::memcpy(small_.data() + place, numbers.data(), size * 4);
  return static_cast<std::int64_t>(place);
}

Tensor SpreadStep::small(std::int64_t place, DType dtype,
                         std::initializer_list<std::int64_t> shape) const {
  return {static_cast<void*>(data_ + 4 * place), dtype, shape, device_};
}

void SpreadStep::keep(const Numbers& numbers, Call call) {
  call.sequences = std::ssize(numbers.lengths);
  call.width = numbers.width;
  call.lengths = add(numbers.lengths);
  if (!numbers.table.empty()) call.table = add(numbers.table);
  if (!numbers.holes.empty()) call.holes = add(numbers.holes);
  if (!numbers.offsets.empty()) call.offsets = add(numbers.offsets);
  calls_.push_back(call);
}

const SpreadStep::Call& SpreadStep::call_for(const model::CachedAttentionArgs& heads,
                                             int turn) const {
  const bool of_logits = !splits_ && heads.groups.data() != local_.groups.data();
  for (const Call& call : calls_) {
    if (call.window == heads.window && call.of_logits == of_logits && call.turn == turn) {
      return call;
    }
  }
  fail(ErrorCode::invalid_argument,
       "a layer has a window of {} tokens that the model does not name", heads.window);
}

PageTable SpreadStep::pages_of(const Call& call) const {
  PageTable result{.lengths = small(call.lengths, DType::i32, {call.sequences})};
  if (call.table >= 0) {
    result.table = small(call.table, DType::i32, {call.sequences, call.width});
  } else {  // page i of a block is its i-th, for every sequence
    result.table = small(block_table_, DType::i32, {1, most_pages_});
    result.table.shape[0] = call.sequences;
    result.table.strides[0] = 0;
  }
  if (call.holes >= 0) result.holes = small(call.holes, DType::i32, {call.sequences, 2});
  return result;
}

}  // namespace tessera
