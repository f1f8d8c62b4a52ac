// Reads any bytes as config.json.
#include "fuzz.h"
#include "model/architectures/config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const tessera::fuzz::TimeBound bound(size);
  tessera::fuzz::takes([&] {
    (void)tessera::model::parse_model_config(tessera::fuzz::text_of(data, size), "config.json");
  });
  return 0;
}
