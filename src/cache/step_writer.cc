#include "cache/step_writer.h"

#include <algorithm>
#include <bit>
#include <tuple>

#include "core/checked.h"

namespace tessera {

// Hands out one block of memory from its start on. 64-bit tensors go first: what follows them is
// aligned.
class StepWriter::Packer {
 public:
  Packer(char* host, char* data, Device device) : host_(host), data_(data), device_(device) {}

  // Where the host writes, and in `tensor` how the device sees it.
  template <typename T>
  T* take(DType dtype, std::initializer_list<std::int64_t> shape, Tensor* tensor) {
    *tensor = Tensor(data_ + used_, dtype, shape, device_);
    T* result = reinterpret_cast<T*>(host_ + used_);
    used_ += tensor->bytes();
    return result;
  }
  std::int32_t* take_i32(std::initializer_list<std::int64_t> shape, Tensor* tensor) {
    return take<std::int32_t>(DType::i32, shape, tensor);
  }
  std::int64_t used() const { return used_; }
  // Where a number that was taken lies in the block.
  std::int32_t place(const std::int32_t* taken) const {
    return static_cast<std::int32_t>(taken - reinterpret_cast<const std::int32_t*>(host_));
  }

 private:
  char *host_, *data_;
  Device device_;
  std::int64_t used_ = 0;
};

// Ids, positions, slots and the rows of logits; then, for all rows and for those of the logits, the
// length and the hole of each sequence, which are at most as many as rows, offsets and tables. The
// rows of drawn tokens are at most as many as sequences.
std::int64_t step_block_bytes(const CacheBatchLimits& limits) {
  constexpr std::int64_t kTokenBytes = 8 + 4 + 4 + 4, kSequenceBytes = 4 + 8;
  const std::int64_t table =
      checked_mul(limits.max_sequences, checked_mul(limits.max_pages_of_a_sequence, 4));
  const std::int64_t groups =
      checked_add(checked_mul(limits.max_tokens, kSequenceBytes),
                  checked_add(checked_mul(limits.max_sequences, 2 * sizeof(std::int32_t)), table));
  const std::int64_t rows = checked_mul(limits.max_sequences, sizeof(StepRow));
  return checked_add(
      rows, checked_add(checked_mul(limits.max_tokens, kTokenBytes), checked_mul(2, groups)));
}

namespace {

// Their logits are those of single tokens, and not of rows that count as many.
bool has_prompt(std::span<const StepPart> parts) {
  return std::any_of(parts.begin(), parts.end(), [](const StepPart& p) { return p.is_prompt; });
}

}  // namespace

// Parts of few tokens first. Rows whose keys are rotated on reading lie together, so that few calls
// write the keys of all. Then runs that share a call, and equal ones as they were given.
bool StepWriter::Run::operator<(const Run& other) const {
  const auto key = [](const Run& run) {
    return std::tuple(run.is_long, run.rope != run.is_long, !run.single, run.many, run.window,
                      run.own, run.part);
  };
  return key(*this) < key(other);
}

bool StepWriter::Run::shares_call(const Run& other) const {
  return std::tie(rope, single, many, window, own) ==
         std::tie(other.rope, other.single, other.many, other.window, other.own);
}

StepWriter::StepWriter(const CacheBatchLimits& limits) : limits_(limits) {
  runs_.reserve(static_cast<std::size_t>(limits.max_sequences));
}

void StepWriter::sort_runs(std::span<const StepPart> parts, bool for_logits) {
  runs_.clear();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const StepPart& part = parts[i];
    Run run{.part = i, .queries = for_logits ? part.logit_rows : part.tokens()};
    if (run.queries == 0) continue;
    const bool of_prompt = part.is_prompt && !for_logits;
    run.is_long = of_prompt || run.queries > CacheBatch::kFewTokens;
    run.rope = part.rope_on_read();
    run.many = of_prompt && !part.rolls();
    run.single = run.queries == 1 && !run.many;
    // A single query sees all keys of its sequence, which has none that left its window.
    if (!run.single && part.policy.kind == CachePolicy::Kind::window) {
      run.window = part.policy.window;
    }
    // Each token of a rolling part is a sequence of its own, and all of them share one table.
    if (!run.single && part.rolls()) run.own = static_cast<std::int64_t>(i) + 1;
    runs_.push_back(run);
  }
  std::sort(runs_.begin(), runs_.end());
}

std::int64_t StepWriter::write(std::span<const StepPart> parts, char* host, char* data,
                               Device device, CacheStep& step) {
  Packer packer(host, data, device);
  step.tokens = 0;
  for (const StepPart& part : parts) step.tokens += part.tokens();
  step.rows = {};
  step_rows_ = nullptr;
  if (std::all_of(parts.begin(), parts.end(), [](const StepPart& p) { return p.is_drawn(); })) {
    step_rows_ = packer.take<StepRow>(DType::i64, {step.tokens, kStepRowWords}, &step.rows);
  }
  sort_runs(parts, /*for_logits=*/false);
  write_rows(parts, packer, step);
  write_groups(parts, packer, step.groups);
  step.logit_groups.clear();
  const bool of_all = step.wants_all_logits() && !has_prompt(parts);
  if (step.logits == 0 || of_all) return packer.used();
  sort_runs(parts, /*for_logits=*/true);
  write_logit_rows(parts, packer, step);
  write_groups(parts, packer, step.logit_groups);
  return packer.used();
}

// All rows. The logits are those of all rows too, until write_logit_rows() says otherwise.
void StepWriter::write_rows(std::span<const StepPart> parts, Packer& packer, CacheStep& step) {
  std::int64_t* positions = packer.take<std::int64_t>(DType::i64, {step.tokens}, &step.positions);
  std::int32_t* ids = packer.take_i32({step.tokens}, &step.ids);
  std::int32_t* slots = packer.take_i32({step.tokens}, &step.slots);
  step.row_begin.resize(parts.size());
  step.few_rows = step.logits = 0;
  std::int64_t row = 0;
  for (const Run& run : runs_) {
    const StepPart& part = parts[run.part];
    step.row_begin[run.part] = row;
    step.logits += part.logit_rows;
    if (!run.is_long) step.few_rows += run.queries;
    if (part.is_padding()) {
      positions[row] = 0;
      ids[row] = 0;
      slots[row++] = -1;  // nothing is appended
      continue;
    }
    const StreamLayout& layout = *part.layout;
    for (std::int64_t i = 0; i < run.queries; ++i, ++row) {
      const std::int64_t t = part.begin + i;
      positions[row] = layout.position(t);
      ids[row] = part.ids[static_cast<std::size_t>(i)];
      const std::int32_t page = part.page(layout.place(t, part.line_begin));
      slots[row] = static_cast<std::int32_t>(page * layout.page_size() + layout.row(t));
    }
  }
  step.first_logit_row = 0;
  step.few_logits = step.few_rows;
  step.logit_rows = {};
  step.logit_begin = step.row_begin;
  if (step.wants_all_logits() && !has_prompt(parts)) return;
  step.few_logits = 0;
  step.logit_begin.assign(parts.size(), -1);
}

void StepWriter::write_logit_rows(std::span<const StepPart> parts, Packer& packer,
                                  CacheStep& step) {
  std::int32_t* rows = packer.take_i32({step.logits}, &step.logit_rows);
  std::int64_t done = 0;
  bool neighbours = true;
  for (const Run& run : runs_) {
    const StepPart& part = parts[run.part];
    const std::int64_t first = step.row_begin[run.part] + part.tokens() - run.queries;
    step.logit_begin[run.part] = done;
    if (!run.is_long) step.few_logits += run.queries;
    for (std::int64_t i = 0; i < run.queries; ++i, ++done) {
      rows[done] = static_cast<std::int32_t>(first + i);
      neighbours = neighbours && rows[done] == rows[0] + done;
    }
  }
  neighbours = neighbours && step.logits < step.tokens;  // otherwise they are not all rows' logits
  step.first_logit_row = neighbours ? rows[0] : -1;
  if (neighbours) step.logit_rows = {};
}

void StepWriter::write_groups(std::span<const StepPart> parts, Packer& packer,
                              std::vector<AttentionGroup>& groups) {
  groups.clear();
  std::int64_t row = 0;
  for (auto begin = runs_.begin(); begin != runs_.end();) {
    const auto end = std::find_if_not(begin, runs_.end(),
                                      [&](const Run& run) { return run.shares_call(*begin); });
    AttentionGroup group;
    group.first_row = row;
    group.many_queries = begin->many;
    for (auto run = begin; run != end; ++run) group.rows += run->queries;
    write_group(parts, {begin, end}, packer, group);
    row += group.rows;
    groups.push_back(group);
    begin = end;
  }
}

// One sequence for each run, or for each token of a rolling part.
void StepWriter::write_group(std::span<const StepPart> parts, std::span<const Run> runs,
                             Packer& packer, AttentionGroup& group) {
  const Run& first = runs.front();
  const bool rolls = first.own != 0;
  group.sequences = rolls ? group.rows : std::ssize(runs);
  group.rope_on_read = first.rope;
  group.mask = first.window > 0 ? Mask::window(first.window - 1, 0) : Mask::causal();
  std::int32_t* lengths = packer.take_i32({group.sequences}, &group.pages.lengths);
  // Sequences that keep all their keys have no holes, and kernels are faster for knowing it.
  const bool has_holes = std::any_of(runs.begin(), runs.end(), [&](const Run& run) {
    const StepPart& part = parts[run.part];
    return !part.is_padding() && part.policy.kind != CachePolicy::Kind::full;
  });
  std::int32_t* holes =
      has_holes ? packer.take_i32({group.sequences, 2}, &group.pages.holes) : nullptr;
  std::int64_t b = 0;
  for (const Run& run : runs) {
    const StepPart& part = parts[run.part];
    if (step_rows_) {
      step_rows_[group.first_row + b] = {.rules = part.rules(),
                                         .token = part.is_padding() ? -1 : part.begin,
                                         .line_begin = part.line_begin,
                                         .length_at = packer.place(lengths + b),
                                         .hole_at = has_holes ? packer.place(holes + 2 * b) : -1,
                                         .pages = static_cast<std::int32_t>(part.pages())};
    }
    if (part.is_padding()) {
      lengths[b] = 0;
      if (has_holes) holes[2 * b] = holes[2 * b + 1] = 0;
      ++b;
      continue;
    }
    const StreamLayout& layout = *part.layout;
    const std::int64_t end = part.begin + part.tokens(), each = rolls ? 1 : run.queries;
    for (std::int64_t t = end - run.queries; t < end; t += each, ++b) {
      const std::int64_t oldest = layout.oldest(t);
      const std::int64_t length = layout.length(oldest, t + each - 1);
      lengths[b] = static_cast<std::int32_t>(length);
      if (has_holes) {
        holes[2 * b] = static_cast<std::int32_t>(layout.n_sink());
        holes[2 * b + 1] = static_cast<std::int32_t>(layout.hole_size(oldest, part.line_begin));
      }
      group.max_keys = std::max(group.max_keys, length);
    }
  }
  const bool equal = std::all_of(runs.begin(), runs.end(),
                                 [&](const Run& run) { return run.queries == first.queries; });
  if (!equal) {
    std::int32_t* offsets = packer.take_i32({group.sequences + 1}, &group.q_offsets);
    offsets[0] = 0;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      offsets[i + 1] = offsets[i] + static_cast<std::int32_t>(runs[i].queries);
    }
  }
  write_table(parts, runs, packer, group);
}

// At least `pages`, as the limits say.
std::int64_t StepWriter::table_width(std::int64_t pages) const {
  std::int64_t steps = ceil_div(pages, limits_.width_step);
  if (limits_.few_widths && steps > 0) {
    const auto power = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(steps)));
    steps = power >= 4 && steps <= power / 4 * 3 ? power / 4 * 3 : power;
  }
  return std::min(checked_mul(steps, limits_.width_step), limits_.max_pages_of_a_sequence);
}

// A row for each run. Entries behind a sequence's last page are not read.
void StepWriter::write_table(std::span<const StepPart> parts, std::span<const Run> runs,
                             Packer& packer, AttentionGroup& group) {
  std::int64_t width = 0;
  for (const Run& run : runs) width = std::max(width, parts[run.part].pages());
  width = table_width(width);
  const std::int64_t rows = std::ssize(runs);
  std::int32_t* table = packer.take_i32({rows, width}, &group.pages.table);
  for (std::int64_t b = 0; b < rows; ++b) {
    const StepPart& part = parts[runs[static_cast<std::size_t>(b)].part];
    if (step_rows_) step_rows_[group.first_row + b].table_at = packer.place(table);
    std::int32_t* entry = std::copy(part.sinks.begin(), part.sinks.end(), table);
    std::copy(part.line.begin(), part.line.end(), entry);
    table += width;
  }
  if (group.sequences == rows) return;
  // One row for all tokens of a rolling part.
  group.pages.table.shape[0] = group.sequences;
  group.pages.table.strides[0] = 0;
}

}  // namespace tessera
