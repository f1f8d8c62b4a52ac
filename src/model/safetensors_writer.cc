// Writing: the widest elements come first and the header is padded to eight bytes, so that every
// tensor lies aligned in the file and readers can map it.
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "core/checked.h"
#include "core/fail.h"
#include "model/atomic_file.h"
#include "model/json.h"
#include "model/quote.h"
#include "model/safetensors.h"
#include "model/safetensors_dtype.h"

namespace tessera::model {
namespace {

constexpr std::size_t kHeaderAlignment = 8;  // the widest element
constexpr std::size_t kChunk = 16 << 20;     // bytes between two calls of progress

void check(const TensorToWrite& tensor) {
  const SafetensorsDType* dtype = find_safetensors_dtype(tensor.dtype);
  if (dtype == nullptr) {
    fail(ErrorCode::invalid_argument, "tensor {}: safetensors have no dtype {}",
         in_quotes(tensor.name), in_quotes(tensor.dtype));
  }
  const std::int64_t bits = checked_mul(checked_product(tensor.shape), dtype->bits);
  if (bits % 8 != 0 || std::cmp_not_equal(bits / 8, tensor.data.size())) {
    fail(ErrorCode::invalid_argument, "tensor {}: {}[{}] needs {} bits, {} bytes are given",
         in_quotes(tensor.name), tensor.dtype, fmt::join(tensor.shape, ", "), bits,
         tensor.data.size());
  }
}

std::vector<const TensorToWrite*> in_file_order(const std::vector<TensorToWrite>& tensors) {
  if (std::cmp_greater(tensors.size(), kMaxSafetensorsTensors)) {
    fail(ErrorCode::invalid_argument, "{} tensors are given, a file holds at most {}",
         tensors.size(), kMaxSafetensorsTensors);
  }
  std::vector<const TensorToWrite*> order;
  std::set<std::string_view> names{"__metadata__"};
  for (const TensorToWrite& tensor : tensors) {
    check(tensor);
    if (!names.insert(tensor.name).second) {
      fail(ErrorCode::invalid_argument,
           "a second tensor {} is given; names in a file are unique, and __metadata__ is taken",
           in_quotes(tensor.name));
    }
    order.push_back(&tensor);
  }
  const auto alignment = [](const TensorToWrite* tensor) {
    return alignment_of(*find_safetensors_dtype(tensor->dtype));
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](const auto* a, const auto* b) { return alignment(a) > alignment(b); });
  return order;
}

// Length, JSON, padding: all that comes before the first tensor.
std::string header_of(const std::vector<const TensorToWrite*>& order,
                      const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  std::size_t begin = 0;
  try {  // only texts that are no UTF-8 can fail
    if (!metadata.empty()) text += "\"__metadata__\":" + Json(metadata).dump();
    for (const TensorToWrite* tensor : order) {
      const std::size_t end = begin + tensor->data.size();
      text += fmt::format(R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          text.size() == 1 ? "" : ",", Json(tensor->name).dump(), tensor->dtype,
                          fmt::join(tensor->shape, ","), begin, end);
      begin = end;
    }
  } catch (const Json::exception&) {
    fail(ErrorCode::invalid_argument, "the name of a tensor or the metadata is not UTF-8");
  }
  text += '}';
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  if (std::cmp_greater(text.size(), kMaxSafetensorsHeader)) {
    fail(ErrorCode::invalid_argument, "the header would have {} bytes, at most {} are allowed",
         text.size(), kMaxSafetensorsHeader);
  }
  std::string length;
  for (int i = 0; i < 8; ++i) length += static_cast<char>(text.size() >> (8 * i) & 0xff);
  return length + text;
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, const std::vector<TensorToWrite>& tensors,
                       const std::map<std::string, std::string>& metadata,
                       const std::function<void(std::int64_t, std::int64_t)>& progress) {
  const auto order = in_file_order(tensors);
  const std::string header = header_of(order, metadata);
  auto total = static_cast<std::int64_t>(header.size());
  for (const TensorToWrite* tensor : order) {
    total = checked_add(total, static_cast<std::int64_t>(tensor->data.size()));
  }
  AtomicFile file(path, total);
  std::int64_t done = 0;
  const auto write = [&](std::span<const std::byte> data) {
    while (!data.empty()) {
      const auto chunk = data.first(std::min(data.size(), kChunk));
      file.write(chunk);
      done += static_cast<std::int64_t>(chunk.size());
      if (progress) progress(done, total);
      data = data.subspan(chunk.size());
    }
  };
  write(std::as_bytes(std::span(header)));
  for (const TensorToWrite* tensor : order) write(tensor->data);
  file.commit();
}

}  // namespace tessera::model
