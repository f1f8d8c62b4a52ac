// Gives any bytes to the safetensors reader: as a whole file, and as the header of a file whose
// length field and amount of data are right. Random bytes almost never get these right.
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "fuzz.h"
#include "model/checkpoint/safetensors.h"

namespace {

using tessera::model::parse_safetensors;
using tessera::model::SafetensorsHeader;
using tessera::model::StoredTensor;

void read(std::span<const std::byte> file) {
  SafetensorsHeader header;
  const bool taken =
      tessera::fuzz::takes([&] { header = parse_safetensors(file, "model.safetensors"); });
  if (!taken) return;
  std::size_t bytes = 0;
  for (const StoredTensor& tensor : header.tensors) {
    // Every byte must be inside the file. The address sanitizer knows where the file ends.
    volatile const int sum =
        std::accumulate(tensor.data.begin(), tensor.data.end(), 0,
                        [](int a, std::byte b) { return a ^ std::to_integer<int>(b); });
    (void)sum;
    bytes += tensor.data.size();
    (void)to_string(tensor);
    tessera::fuzz::takes([&] { (void)tensor.tensor(); });
  }
  if (bytes > file.size()) std::abort();  // two tensors would share bytes
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const tessera::fuzz::TimeBound bound(size);
  // The copies have exactly their own size, so that a read past the end is noticed.
  const std::vector<std::uint8_t> whole(data, data + size);
  read(std::as_bytes(std::span(whole)));

  if (size == 0) return 0;
  const std::size_t data_bytes = data[size - 1];  // the last byte says how much data follows
  std::vector<std::uint8_t> framed;
  for (int i = 0; i < 8; ++i) framed.push_back(static_cast<std::uint8_t>((size - 1) >> (8 * i)));
  framed.insert(framed.end(), data, data + size - 1);
  framed.resize(framed.size() + data_bytes, 'x');
  framed.shrink_to_fit();
  read(std::as_bytes(std::span(framed)));
  return 0;
}
