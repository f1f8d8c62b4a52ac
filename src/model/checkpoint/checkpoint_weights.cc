#include "model/checkpoint/checkpoint_weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <span>

#include "core/checked.h"
#include "core/fail.h"
#include "core/wildcard.h"
#include "model/checkpoint/quote.h"
#include "tessera/quant.h"

namespace tessera::model {
namespace {

void check_shape(const StoredTensor& stored, std::initializer_list<std::int64_t> expected) {
  if (std::equal(stored.shape.begin(), stored.shape.end(), expected.begin(), expected.end())) {
    return;
  }
  fail(ErrorCode::file, "tensor {} has shape [{}], but config.json asks for [{}]", stored.name,
       fmt::join(stored.shape, ", "), fmt::join(expected, ", "));
}

bool is_float_tensor(const StoredTensor& stored) {
  return stored.dtype == "F32" || stored.dtype == "F16" || stored.dtype == "BF16";
}

bool belongs_to(const StoredTensor& tensor, std::string_view module) {
  return tensor.name.size() > module.size() && tensor.name.starts_with(module) &&
         tensor.name[module.size()] == '.';
}

// Tensors that old files have besides the weights: tables that are computed today.
bool is_known_leftover(std::string_view name) {
  return name.ends_with("rotary_emb.inv_freq") || name.ends_with(".attention.bias") ||
         name.ends_with(".attention.masked_bias");
}

Tensor placed(const Tensor& like, DType dtype, void* data, Device device) {
  return Tensor(data, dtype, std::span(like.shape.data(), static_cast<std::size_t>(like.rank)),
                device);
}

void upload(Context& ctx, const Tensor& host, const Tensor& to) {
  copy_bytes(ctx, to.data, to.device, host.data, host.device, host.bytes());
}

Weight as_weight(const Tensor& t) { return Weight::dense(t.rank == 1 ? t.view({1, -1}) : t); }

Tensor float_tensor(const StoredTensor& stored) {
  if (is_float_tensor(stored)) return stored.tensor();
  fail(ErrorCode::file, "tensor {} is {}; dense weights are F32, F16 or BF16", stored.name,
       stored.dtype);
}

}  // namespace

CheckpointWeights::CheckpointWeights(Context& ctx, std::shared_ptr<const Checkpoint> checkpoint,
                                     DType dtype, const LoadOptions& options)
    : WeightSource(ctx),
      checkpoint_(std::move(checkpoint)),
      layouts_(*checkpoint_),
      dtype_(dtype),
      options_(options),
      pattern_matched_(options.keep_dense.size(), false) {
  notes_ = layouts_.notes();
  for (const StoredTensor& tensor : checkpoint_->tensors()) {
    bytes_total_ += static_cast<std::int64_t>(tensor.data.size());
  }
}

bool CheckpointWeights::has_module(std::string_view module) const {
  const auto& tensors = checkpoint_->tensors();
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](const StoredTensor& tensor) { return belongs_to(tensor, module); });
}

bool CheckpointWeights::shares_table(const std::string& table, const std::string& head) {
  if (!has_module(head) || !has_module(table)) return true;
  const StoredTensor* a = checkpoint_->find(table + ".weight");
  const StoredTensor* b = checkpoint_->find(head + ".weight");
  if (a && b && a->dtype == b->dtype && a->shape == b->shape &&
      std::equal(a->data.begin(), a->data.end(), b->data.begin(), b->data.end())) {
    mark_used(*b);
    return true;
  }
  notes_.push_back(fmt::format(
      "config.json ties {} to {}, but the checkpoint has both with different values: not tied",
      head, table));
  return false;
}

void CheckpointWeights::mark_used(const StoredTensor& tensor) {
  if (!used_.insert(tensor.name).second) return;
  bytes_read_ += static_cast<std::int64_t>(tensor.data.size());
  if (options_.progress) options_.progress(bytes_read_, bytes_total_);
}

// ---- vectors and tables -------------------------------------------------------------------------

// The stream is in order: new data is staged only after earlier ops have read the old. Only
// replacing the memory by larger memory has to wait.
char* CheckpointWeights::stage(std::int64_t bytes) {
  if (bytes > staging_.bytes()) {
    ctx_.synchronize();
    staging_ = Buffer();
    staging_ = Buffer(bytes, ctx_.device());
  }
  return static_cast<char*>(staging_.data());
}

Tensor CheckpointWeights::as_stored(const Tensor& host) {
  if (ctx_.device().is_cpu()) return host;
  const Tensor staged = placed(host, host.dtype, stage(host.bytes()), ctx_.device());
  upload(ctx_, host, staged);
  return staged;
}

Tensor CheckpointWeights::dense(const StoredTensor& stored, const WeightSlice& slice) {
  Tensor tensor = float_tensor(stored);
  Buffer copied;  // of columns
  if (tensor.rank == 1) {
    tensor = tensor.slice(0, slice.rows.begin, slice.rows.begin + slice.rows.size(tensor.size(0)));
  } else {
    tensor = sliced(host_, tensor, slice, copied);
  }
  const bool is_view = ctx_.device().is_cpu() && copied.data() == nullptr;
  if (!ctx_.device().is_cpu()) {
    const Tensor host = tensor;
    Buffer& buffer =
        buffers_.emplace_back(checked_mul(host.numel(), size_of(dtype_)), ctx_.device());
    tensor = placed(host, dtype_, buffer.data(), ctx_.device());
    if (host.dtype == dtype_) {
      upload(ctx_, host, tensor);
    } else {
      dequantize(ctx_, as_weight(as_stored(host)), as_weight(tensor).data);
    }
  }
  if (is_view && checkpoint_->is_mapped(stored)) mapped_.add(tensor.bytes());
  if (ctx_.device().is_cpu() && !is_view) buffers_.push_back(std::move(copied));
  mark_used(stored);
  bytes_ += tensor.bytes();
  return tensor;
}

Tensor CheckpointWeights::vector(const std::string& name, std::int64_t n, const Range& part) {
  const StoredTensor& stored = checkpoint_->at(name);
  check_shape(stored, {n});
  return dense(stored, {.rows = part});
}

Weight CheckpointWeights::table(const std::string& module, const std::string& head,
                                std::int64_t rows, std::int64_t n, const Range& part) {
  if (is_packed(module)) return prepared(module, published(module, rows, n, {.rows = part}));
  const StoredTensor& stored = checkpoint_->at(module + ".weight");
  check_shape(stored, {rows, n});
  if (options_.pack_embedding && packs_layer(module, head)) {
    return packed_now(module, stored, {.rows = part});
  }
  return Weight::dense(dense(stored, {.rows = part}));
}

// ---- matrices -----------------------------------------------------------------------------------

// An embedding may be listed among the packed modules and still be dense: the tensor decides.
bool CheckpointWeights::is_packed(const std::string& module) const {
  const StoredTensor* weight = checkpoint_->find(module + ".weight");
  return !(weight && is_float_tensor(*weight)) && has_module(module) && layouts_.is_packed(module);
}

std::vector<const StoredTensor*> CheckpointWeights::packed_parts(const std::string& module) const {
  const std::string bias = module + ".bias";
  std::vector<const StoredTensor*> parts;
  for (const StoredTensor& tensor : checkpoint_->tensors()) {
    if (belongs_to(tensor, module) && tensor.name != bias) parts.push_back(&tensor);
  }
  return parts;
}

// A weight that the file has packed, in the published layout; on a GPU a staged copy.
PackedWeight CheckpointWeights::published(const std::string& module, std::int64_t out,
                                          std::int64_t in, const WeightSlice& slice) {
  PackedWeight host = layouts_.read(module, out, in);
  host = sliced(host_, module, std::move(host), slice);
  for (const StoredTensor* part : packed_parts(module)) mark_used(*part);
  if (ctx_.device().is_cpu()) return host;

  PackedWeight result{.weight = host.weight, .storage = {}};
  Tensor* const parts[] = {&result.weight.data, &result.weight.scales, &result.weight.zeros};
  std::int64_t bytes = 0, offset = 0;
  for (const Tensor* part : parts) {
    bytes = checked_add(bytes, checked_align(part->bytes(), Buffer::kAlignment));
  }
  char* const staged = stage(bytes);
  for (Tensor* part : parts) {
    if (!part->defined()) continue;
    char* to = staged + offset;
    copy_bytes(ctx_, to, ctx_.device(), part->data, Device::cpu(), part->bytes());
    part->data = to;
    part->device = ctx_.device();
    offset += checked_align(part->bytes(), Buffer::kAlignment);
  }
  return result;
}

// Tries every pattern, to record for each whether it ever matched.
bool CheckpointWeights::packs_layer(std::string_view layer, std::string_view alias) {
  bool keeps_dense = false;
  for (std::size_t i = 0; i < options_.keep_dense.size(); ++i) {
    const std::string& pattern = options_.keep_dense[i];
    if (!wildcard_match(pattern, layer) && !wildcard_match(pattern, alias)) continue;
    pattern_matched_[i] = true;
    keeps_dense = true;
  }
  return !keeps_dense && options_.pack && options_.pack->format != Format::dense;
}

Weight CheckpointWeights::packed_now(const std::string& module, const StoredTensor& stored,
                                     const WeightSlice& slice) {
  const Tensor tensor = as_stored(float_tensor(stored));
  mark_used(stored);
  PackedWeight whole = naming(module, [&] { return quantize(ctx_, tensor, *options_.pack); });
  return prepared(module, sliced(ctx_, module, std::move(whole), slice));
}

Weight CheckpointWeights::linear(const std::string& module, std::int64_t out, std::int64_t in,
                                 const WeightSlice& slice) {
  const bool packs = packs_layer(module, module);
  if (is_packed(module)) {
    return add_layer(module, prepared(module, published(module, out, in, slice)));
  }

  const StoredTensor& stored = checkpoint_->at(module + ".weight");
  check_shape(stored, {out, in});
  return add_layer(module,
                   packs ? packed_now(module, stored, slice) : Weight::dense(dense(stored, slice)));
}

Weight CheckpointWeights::tied_head(const std::string& module, const std::string& head,
                                    const Weight& table, const Range& part) {
  const bool packs = packs_layer(module, head);
  const bool shared = table.format != Format::dense || options_.pack_embedding || !packs;
  return add_layer(
      module,
      shared ? table : packed_now(module, checkpoint_->at(module + ".weight"), {.rows = part}));
}

// ---- the end ------------------------------------------------------------------------------------

void CheckpointWeights::finish() {
  ctx_.synchronize();  // from here on any Context may use the model
  for (std::size_t i = 0; i < pattern_matched_.size(); ++i) {
    if (pattern_matched_[i]) continue;
    fail(ErrorCode::invalid_argument,
         "keep_dense pattern '{}' matches no layer; the first is {}, the last {}",
         options_.keep_dense[i], layers_.front().name, layers_.back().name);
  }
  std::vector<std::string> unused;
  for (const StoredTensor& tensor : checkpoint_->tensors()) {
    if (!used_.contains(tensor.name) && !is_known_leftover(tensor.name)) {
      unused.push_back(in_quotes(tensor.name));
    }
  }
  if (options_.progress) options_.progress(bytes_total_, bytes_total_);
  if (unused.empty()) return;
  constexpr std::size_t kShown = 3;
  const std::size_t shown = std::min(kShown, unused.size());
  notes_.push_back(fmt::format("{} tensor{} of the checkpoint {} not used: {}{}", unused.size(),
                               unused.size() == 1 ? "" : "s", unused.size() == 1 ? "is" : "are",
                               fmt::join(unused.begin(), unused.begin() + shown, ", "),
                               unused.size() > shown ? ", ..." : ""));
}

WeightStorage CheckpointWeights::take_storage() {
  // On a GPU everything has been copied.
  return {ctx_.device().is_cpu() ? checkpoint_ : nullptr, std::move(buffers_), std::move(mapped_)};
}

}  // namespace tessera::model
