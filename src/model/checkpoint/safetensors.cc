// Reading: the header is checked as a whole before any tensor is used, so that every view lies
// inside the file, none overlaps another, and no byte is unaccounted for.
#include "model/checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <tuple>
#include <utility>

#include "core/checked.h"
#include "core/fail.h"
#include "model/checkpoint/aligned_copy.h"
#include "model/checkpoint/json.h"
#include "model/checkpoint/quote.h"
#include "model/checkpoint/safetensors_dtype.h"

namespace tessera::model {
namespace {

constexpr std::int64_t kLengthBytes = 8;
constexpr std::size_t kMaxFileRank = 64;  // PyTorch's limit

struct Entry {
  StoredTensor tensor;
  std::int64_t begin, end;  // bytes of the data part
};

// Other formats under this name. The first two are common.
void refuse_other_formats(std::string_view file, const std::string& where) {
  if (file.starts_with("version https://git-lfs")) {
    fail(ErrorCode::file,
         "{} is a Git LFS pointer and not the file itself; fetch it with 'git lfs pull'", where);
  }
  if (file.starts_with("PK\x03\x04") || file.starts_with("\x80\x02")) {
    fail(ErrorCode::file, "{} is a PyTorch pickle; convert it to safetensors first", where);
  }
  if (file.starts_with("GGUF")) {
    fail(ErrorCode::file, "{} is a GGUF file; Tessera reads Hugging Face safetensors", where);
  }
}

std::string_view header_text(std::span<const std::byte> file, const std::string& where) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  refuse_other_formats(text, where);
  if (file.size() < kLengthBytes) {
    fail(ErrorCode::file, "{}: {} bytes are too few for a safetensors file, which starts with 8",
         where, file.size());
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {  // little-endian on every machine
    length |= std::uint64_t{static_cast<unsigned char>(text[i])} << (8 * i);
  }
  if (length > std::uint64_t{kMaxSafetensorsHeader}) {
    fail(ErrorCode::file,
         "{}: the header would have {} bytes, at most {} are allowed; this is not a safetensors "
         "file",
         where, length, kMaxSafetensorsHeader);
  }
  if (length > file.size() - kLengthBytes) {
    fail(ErrorCode::file,
         "{}: the header has {} bytes and the file ends after {} of them; it is truncated, fetch "
         "it again",
         where, length, file.size() - kLengthBytes);
  }
  const std::string_view header = text.substr(kLengthBytes, length);
  if (!header.starts_with('{')) {
    fail(ErrorCode::file, "{}: the header does not start with '{{'; this is not a safetensors file",
         where);
  }
  return header;
}

// A size or an offset: only JSON's whole numbers count, as in other readers of the format.
std::optional<std::int64_t> size_in(const Json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const auto size = value.get<std::uint64_t>();
  if (size > std::uint64_t{INT64_MAX}) return std::nullopt;
  return static_cast<std::int64_t>(size);
}

std::vector<std::int64_t> sizes_in(const Json& info, const char* key, const std::string& where) {
  const Json* values = JsonView(info, where).find(key);
  if (values == nullptr || !values->is_array() || values->size() > kMaxFileRank) {
    fail(ErrorCode::file, "{}: {} must be an array of at most {} whole numbers", where, key,
         kMaxFileRank);
  }
  std::vector<std::int64_t> sizes;
  for (const Json& value : *values) {
    const auto size = size_in(value);
    if (!size) {
      fail(ErrorCode::file, "{}: {} holds {}; only whole numbers from 0 to 2^63 - 1 are allowed",
           where, key, describe(value));
    }
    sizes.push_back(*size);
  }
  return sizes;
}

std::int64_t declared_bytes(const SafetensorsDType& dtype, std::span<const std::int64_t> shape,
                            const std::string& where) {
  std::int64_t bits = 0;
  try {
    bits = checked_mul(checked_product(shape), dtype.bits);
  } catch (const Error&) {
    fail(ErrorCode::file, "{}: the shape [{}] is too large", where, fmt::join(shape, ", "));
  }
  if (bits % 8 != 0) {
    fail(ErrorCode::file, "{}: {}[{}] does not end on a whole byte", where, dtype.name,
         fmt::join(shape, ", "));
  }
  return bits / 8;
}

Entry read_entry(const std::string& name, const Json& info, std::span<const std::byte> data,
                 const std::string& file) {
  const std::string where = fmt::format("{}: tensor {}", file, in_quotes(name));
  Entry entry{.tensor = {.name = name, .dtype = {}, .shape = {}, .data = {}}, .begin = 0, .end = 0};
  entry.tensor.dtype = JsonView(info, where).string("dtype");
  const SafetensorsDType* dtype = find_safetensors_dtype(entry.tensor.dtype);
  if (dtype == nullptr) {
    fail(ErrorCode::file, "{}: the format has no dtype {}", where, in_quotes(entry.tensor.dtype));
  }
  entry.tensor.shape = sizes_in(info, "shape", where);
  const auto offsets = sizes_in(info, "data_offsets", where);
  if (offsets.size() != 2 || offsets[0] > offsets[1]) {
    fail(ErrorCode::file, "{}: data_offsets must be the begin and the end of its data", where);
  }
  std::tie(entry.begin, entry.end) = std::pair(offsets[0], offsets[1]);
  if (std::cmp_greater(entry.end, data.size())) {
    fail(ErrorCode::file,
         "{} ends at byte {} of the data and the file holds {}; it is truncated, fetch it again",
         where, entry.end, data.size());
  }
  const std::int64_t bytes = declared_bytes(*dtype, entry.tensor.shape, where);
  if (bytes != entry.end - entry.begin) {
    fail(ErrorCode::file, "{}: {}[{}] needs {} bytes, data_offsets give it {}", where, dtype->name,
         fmt::join(entry.tensor.shape, ", "), bytes, entry.end - entry.begin);
  }
  entry.tensor.data = data.subspan(static_cast<std::size_t>(entry.begin),
                                   static_cast<std::size_t>(entry.end - entry.begin));
  return entry;
}

std::map<std::string, std::string> read_metadata(const Json& json, const std::string& file) {
  std::map<std::string, std::string> metadata;
  const std::string where = file + ": __metadata__";
  const JsonView view(json, where);
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) {
      fail(ErrorCode::file, "{}: {} is not a string; only strings are allowed", where,
           in_quotes(key));
    }
    metadata.emplace(key, value.get<std::string>());
  }
  return metadata;
}

// One after the other from the first byte to the last: no overlap, no gap, nothing left.
void check_ranges(const std::vector<Entry>& sorted, std::size_t data_bytes,
                  const std::string& where) {
  std::int64_t expected = 0;
  for (const Entry& entry : sorted) {
    if (entry.begin != expected) {
      fail(ErrorCode::file, "{}: tensor {} begins at byte {} of the data, it must begin at {}: {}",
           where, in_quotes(entry.tensor.name), entry.begin, expected,
           entry.begin < expected ? "it overlaps another one" : "there is a gap before it");
    }
    expected = entry.end;
  }
  if (std::cmp_not_equal(expected, data_bytes)) {
    fail(ErrorCode::file, "{}: the tensors end at byte {} of the data and the file holds {}", where,
         expected, data_bytes);
  }
}

}  // namespace

SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& where) {
  const std::string_view text = header_text(file, where);
  const auto data = file.subspan(kLengthBytes + text.size());
  const Json json = parse_json(text, where + " (header)");
  if (std::cmp_greater(json.size(), kMaxSafetensorsTensors)) {
    fail(ErrorCode::file, "{}: {} tensors, at most {} are allowed", where, json.size(),
         kMaxSafetensorsTensors);
  }
  SafetensorsHeader header;
  std::vector<Entry> entries;
  for (const auto& [name, info] : json.items()) {
    if (name == "__metadata__") {
      header.metadata = read_metadata(info, where);
    } else {
      entries.push_back(read_entry(name, info, data, where));
    }
  }
  // Empty tensors may share their place with the next one: they come first, by name.
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.tensor.name) < std::tie(b.begin, b.end, b.tensor.name);
  });
  check_ranges(entries, data.size(), where);
  header.tensors.reserve(entries.size());
  for (Entry& entry : entries) header.tensors.push_back(std::move(entry.tensor));
  return header;
}

bool is_aligned(const StoredTensor& tensor) {
  const SafetensorsDType* dtype = find_safetensors_dtype(tensor.dtype);
  if (dtype == nullptr || tensor.data.empty()) return true;  // nothing to read
  const auto address = std::bit_cast<std::uintptr_t>(tensor.data.data());
  return address % static_cast<std::uintptr_t>(alignment_of(*dtype)) == 0;
}

Tensor StoredTensor::tensor() const {
  const SafetensorsDType* known = find_safetensors_dtype(dtype);
  if (known == nullptr || !known->dtype) {
    fail(ErrorCode::unsupported,
         "tensor {} is {}; Tessera reads F32, F16, BF16, F8_E4M3, F8_E8M0, I8, U8, I32 and I64",
         in_quotes(name), dtype);
  }
  if (shape.size() > static_cast<std::size_t>(kMaxRank)) {
    fail(ErrorCode::unsupported, "tensor {} has {} dimensions; Tessera reads up to {}",
         in_quotes(name), shape.size(), kMaxRank);
  }
  const bool aligned = is_aligned(*this);
  if (!aligned && !copy) {
    fail(ErrorCode::file, "tensor {} lies at an address that is not a multiple of {} bytes",
         in_quotes(name), alignment_of(*known));
  }
  const std::byte* const start = aligned ? data.data() : copy->of(data);
  if (shape.empty()) return Tensor(start, *known->dtype, {1});
  return Tensor(start, *known->dtype, shape);
}

std::string to_string(const StoredTensor& tensor) {
  return fmt::format("{} {}[{}]", printable(tensor.name), tensor.dtype,
                     fmt::join(tensor.shape, ", "));
}

}  // namespace tessera::model
