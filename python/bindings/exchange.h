// DLPack's C table for exchanging tensors (`__dlpack_c_exchange_api__` of a tensor's type), as the
// DLPack specification lays it out. PyTorch has it; a view through it costs nanoseconds, where
// `__dlpack__` costs microseconds, and it tells the library's current stream.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>

namespace tessera::python {

struct ManagedTensor;  // DLManagedTensorVersioned: only ever passed through

struct ExchangeTable {
  struct Header {
    std::uint32_t major, minor;
    Header* previous;
  } header;
  int (*allocate)(nanobind::dlpack::dltensor* prototype, ManagedTensor** out, void* error_context,
                  void (*set_error)(void* context, const char* kind, const char* message));
  int (*managed_from_object)(void* object, ManagedTensor** out);
  int (*object_from_managed)(ManagedTensor* tensor, void** out_object);
  int (*view_of_object)(void* object, nanobind::dlpack::dltensor* out);  // may be null
  int (*current_stream)(std::int32_t device_type, std::int32_t device_id, void** out_stream);
};

// The table of this object's type; null if it has none that we know.
const ExchangeTable* exchange_table(nanobind::handle object);

}  // namespace tessera::python
