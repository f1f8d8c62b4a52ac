// One call of an op from Python: arrays become Tensors, the Context is found, and the GIL is let go
// while the op runs.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "stream_order.h"
#include "stub_types.h"
#include "tessera/context.h"
#include "tessera/tensor.h"

namespace tessera::python {

namespace nb = nanobind;

using Shape = std::vector<std::int64_t>;

// Refuses a call in one sentence: "attention: q is a str; ...".
[[noreturn]] void refuse(const std::string& message);

// The name of an object's type, for refusals.
std::string kind_of(nb::handle object);

class Call {
 public:
  // `ctx`: a Context, or None for the thread's own on the device of the first array.
  Call(const char* op, nb::handle ctx);
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // A view of the array, only to be read. None gives an empty Tensor.
  Tensor input(const char* name, nb::handle array);
  // A view to write to. Refuses read-only arrays.
  Tensor output(const char* name, nb::handle array);
  // The same; if `array` is None, it becomes a new one, of the library that `like` is from.
  Tensor output(const char* name, nb::object& array, nb::handle like, DType dtype,
                const Shape& shape);

  // Where the call runs if no Context is given, and no array before this one said so.
  void found_on(Device device);
  Context& context();
  // Runs op(Context&) without the GIL, in order with the arrays' stream.
  template <typename Op>
  void run(Op&& op) {
    Context& ctx = context();
    const nb::gil_scoped_release released;
    StreamOrder order(ctx, stream_);
    op(ctx);
    order.finish();
  }

 private:
  Tensor view(const char* name, nb::handle array, bool writable);
  Tensor through_table(const char* name, nb::handle array, bool writable);
  Tensor through_capsule(const char* name, nb::handle array, bool writable);
  Tensor checked(const char* name, const nb::dlpack::dltensor& from, void* data, bool writable);

  const char* op_;
  Context* ctx_ = nullptr;
  Device device_{};
  bool has_device_ = false;
  void* stream_ = nullptr;                     // of the arrays' library, on the GPU
  std::vector<nb::ndarray<nb::ro>> imported_;  // what holds the memory of views, until the end
};

// A new array of this dtype and shape, of the library that `like` is from: a torch tensor, a numpy
// array, or a tessera.Tensor.
nb::object new_array(nb::handle like, DType dtype, const Shape& shape, Device device);

Shape shape_of(const Tensor& tensor);
// The shape with another last size.
Shape with_last(const Tensor& tensor, std::int64_t last);
// The shape without the last dimension; [1] if there was only one.
Shape without_last(const Tensor& tensor);

}  // namespace tessera::python
