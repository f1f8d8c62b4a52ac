// Writing: the widest elements come first and the header is padded to eight bytes, so that every
// tensor lies aligned in the file and readers can map it.
#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "core/checked.h"
#include "core/fail.h"
#include "model/checkpoint/atomic_file.h"
#include "model/checkpoint/json.h"
#include "model/checkpoint/quote.h"
#include "model/checkpoint/safetensors.h"
#include "model/checkpoint/safetensors_dtype.h"

namespace tessera::model {
namespace {

constexpr std::size_t kHeaderAlignment = 8;  // the widest element
constexpr std::size_t kChunk = 16 << 20;     // bytes between two calls of progress

std::int64_t written_bytes(const TensorToWrite& tensor) {
  const SafetensorsDType* dtype = find_safetensors_dtype(tensor.dtype);
  if (dtype == nullptr) {
    fail(ErrorCode::invalid_argument, "tensor {}: safetensors have no dtype {}",
         in_quotes(tensor.name), in_quotes(tensor.dtype));
  }
  const std::int64_t bits = checked_mul(checked_product(tensor.shape), dtype->bits);
  if (bits % 8 != 0) {
    fail(ErrorCode::invalid_argument,
         "tensor {}: {}[{}] needs {} bits, which is not a whole number of bytes",
         in_quotes(tensor.name), tensor.dtype, fmt::join(tensor.shape, ", "), bits);
  }
  return bits / 8;
}

void check_data(const TensorToWrite& tensor, std::size_t bytes) {
  if (std::cmp_equal(written_bytes(tensor), bytes)) return;
  fail(ErrorCode::invalid_argument, "tensor {}: {}[{}] needs {} bytes, {} are given",
       in_quotes(tensor.name), tensor.dtype, fmt::join(tensor.shape, ", "), written_bytes(tensor),
       bytes);
}

std::vector<const TensorToWrite*> in_file_order(const std::vector<TensorToWrite>& tensors) {
  if (std::cmp_greater(tensors.size(), kMaxSafetensorsTensors)) {
    fail(ErrorCode::invalid_argument, "{} tensors are given, a file holds at most {}",
         tensors.size(), kMaxSafetensorsTensors);
  }
  std::vector<const TensorToWrite*> order;
  std::set<std::string_view> names{"__metadata__"};
  for (const TensorToWrite& tensor : tensors) {
    written_bytes(tensor);  // or it is refused
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
  std::int64_t begin = 0;
  try {  // only text that is not UTF-8 can fail
    if (!metadata.empty()) text += "\"__metadata__\":" + Json(metadata).dump();
    for (const TensorToWrite* tensor : order) {
      const std::int64_t end = checked_add(begin, written_bytes(*tensor));
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

struct SafetensorsWriter::State {
  struct Place {
    TensorToWrite tensor;  // without its data
    std::int64_t offset;   // in the file
    bool written = false;
  };

  State(const std::filesystem::path& path, const std::vector<const TensorToWrite*>& order,
        const std::string& header, WriteProgress report)
      : total(static_cast<std::int64_t>(header.size())), progress(std::move(report)) {
    for (const TensorToWrite* tensor : order) {
      places.emplace(tensor->name, Place{{tensor->name, tensor->dtype, tensor->shape, {}}, total});
      total = checked_add(total, written_bytes(*tensor));
    }
    file.emplace(path, total);
    write_at(0, std::as_bytes(std::span(header)));
  }

  void write_at(std::int64_t offset, std::span<const std::byte> data) {
    while (!data.empty()) {
      const auto chunk = data.first(std::min(data.size(), kChunk));
      file->write_at(offset, chunk);
      offset += static_cast<std::int64_t>(chunk.size());
      done += static_cast<std::int64_t>(chunk.size());
      if (progress) progress(done, total);
      data = data.subspan(chunk.size());
    }
  }

  std::map<std::string, Place, std::less<>> places;
  std::int64_t total, done = 0;
  WriteProgress progress;
  std::optional<AtomicFile> file;
};

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     const std::vector<TensorToWrite>& tensors,
                                     const std::map<std::string, std::string>& metadata,
                                     WriteProgress progress) {
  const auto order = in_file_order(tensors);
  state_ = std::make_unique<State>(path, order, header_of(order, metadata), std::move(progress));
}

SafetensorsWriter::~SafetensorsWriter() = default;

void SafetensorsWriter::write(std::string_view name, std::span<const std::byte> data) {
  const auto place = state_->places.find(name);
  if (place == state_->places.end() || place->second.written) {
    fail(ErrorCode::invalid_argument, "tensor {} was {}", in_quotes(name),
         place == state_->places.end() ? "not announced" : "written before");
  }
  check_data(place->second.tensor, data.size());
  state_->write_at(place->second.offset, data);
  place->second.written = true;
}

void SafetensorsWriter::commit() {
  for (const auto& [name, place] : state_->places) {
    if (!place.written) {
      fail(ErrorCode::invalid_argument, "tensor {} was announced and not written", in_quotes(name));
    }
  }
  state_->file->commit();
}

void write_safetensors(const std::filesystem::path& path, const std::vector<TensorToWrite>& tensors,
                       const std::map<std::string, std::string>& metadata,
                       const WriteProgress& progress) {
  for (const TensorToWrite& tensor : tensors) check_data(tensor, tensor.data.size());
  SafetensorsWriter writer(path, tensors, metadata, progress);
  for (const TensorToWrite& tensor : tensors) writer.write(tensor.name, tensor.data);
  writer.commit();
}

}  // namespace tessera::model
