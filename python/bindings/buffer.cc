#include "tessera/buffer.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "call.h"
#include "names.h"
#include "owned_tensor.h"

namespace tessera::python {

using namespace nb::literals;

const OwnedTensor* try_owned_tensor(nb::handle object) {
  return nb::isinstance<OwnedTensor>(object) ? nb::cast<const OwnedTensor*>(object) : nullptr;
}

nb::object new_owned_tensor(DType dtype, std::span<const std::int64_t> shape, Device device) {
  auto buffer = std::make_shared<const Buffer>(dtype, shape, device);
  const Tensor view = buffer->tensor();
  return nb::cast(OwnedTensor{std::move(buffer), view});
}

namespace {

// nanobind's own array object, which has __dlpack__ and the buffer protocol; it keeps `self` alive.
nb::object exported(nb::handle self) {
  const Tensor& view = nb::cast<const OwnedTensor&>(self).view;
  std::array<std::size_t, kMaxRank> shape{};
  for (int i = 0; i < view.rank; ++i) {
    shape[static_cast<std::size_t>(i)] =
        static_cast<std::size_t>(view.shape[static_cast<std::size_t>(i)]);
  }
  return nb::ndarray<nb::array_api>(view.data, static_cast<std::size_t>(view.rank), shape.data(),
                                    self, view.strides.data(), dlpack_dtype(view.dtype),
                                    static_cast<int>(view.device.type), view.device.index)
      .cast();
}

nb::object numpy_of(nb::handle self) {
  const OwnedTensor& tensor = nb::cast<const OwnedTensor&>(self);
  if (!tensor.view.device.is_cpu() || numpy_name(tensor.view.dtype) == nullptr) {
    refuse("a Tensor of " + std::string(name(tensor.view.dtype)) + " on " +
           to_string(tensor.view.device) +
           " has no numpy twin; convert() it to f32 on the CPU, or use torch.from_dlpack");
  }
  return nb::module_::import_("numpy").attr("asarray")(exported(self));
}

}  // namespace

void bind_buffer(nb::module_& m) {
  nb::class_<OwnedTensor>(
      m, "Tensor",
      "Memory of Tessera's own. Any library reads it without a copy: torch.from_dlpack(t),\n"
      "numpy.from_dlpack(t), t.numpy().\n\n"
      ">>> tessera.Tensor([2, 3], dtype='bf16').shape\n(2, 3)")
      .def(
          "__init__",
          [](OwnedTensor* self, const std::vector<std::int64_t>& shape, const std::string& dtype,
             const std::string& device) {
            auto buffer =
                std::make_shared<const Buffer>(parse_dtype(dtype), shape, parse_device(device));
            const Tensor view = buffer->tensor();
            new (self) OwnedTensor{std::move(buffer), view};
          },
          "shape"_a, "dtype"_a = "f32", "device"_a = "cpu", "Uninitialised memory.")
      .def_prop_ro("shape",
                   [](const OwnedTensor& self) { return nb::tuple(nb::cast(shape_of(self.view))); })
      .def_prop_ro("dtype", [](const OwnedTensor& self) { return name(self.view.dtype); })
      .def_prop_ro("device", [](const OwnedTensor& self) { return to_string(self.view.device); })
      .def_prop_ro("nbytes", [](const OwnedTensor& self) { return self.view.bytes(); })
      .def("numpy", &numpy_of, "A numpy array of the same memory.")
      .def(
          "__array__",
          [](nb::handle self, nb::handle dtype, nb::handle copy) {
            nb::object array = numpy_of(self);
            if (!dtype.is_none()) array = array.attr("astype")(dtype);
            return !copy.is_none() && nb::cast<bool>(copy) ? array.attr("copy")() : array;
          },
          "dtype"_a = nb::none(), "copy"_a = nb::none())
      .def("__dlpack__",
           [](nb::handle self, nb::kwargs options) {
             return exported(self).attr("__dlpack__")(**options);
           })
      .def("__dlpack_device__",
           [](nb::handle self) { return exported(self).attr("__dlpack_device__")(); })
      .def("__repr__",
           [](const OwnedTensor& self) { return "Tensor(" + to_string(self.view) + ")"; });
}

}  // namespace tessera::python
