#include "call.h"

#include "contexts.h"
#include "exchange.h"
#include "names.h"
#include "owned_tensor.h"
#include "tessera/error.h"

namespace tessera::python {
namespace {

constexpr int kPinnedHost = 3, kManaged = 13;  // DLPack's kDLCUDAHost, kDLCUDAManaged

Device device_of(const nb::dlpack::dltensor& tensor, const std::string& where) {
  switch (tensor.device.device_type) {
    case static_cast<int>(DeviceType::cpu):
    case kPinnedHost:
      return Device::cpu();
    case static_cast<int>(DeviceType::cuda):
    case kManaged:
      return Device::cuda(tensor.device.device_id);
    default:
      refuse(where + " is on a device that Tessera does not know (DLPack type " +
             std::to_string(tensor.device.device_type) + "); give arrays on the CPU or a CUDA GPU");
  }
}

// Shape and strides. Where an array has no elements, or a dimension one, its library may give any
// stride: those become the contiguous ones.
void set_strides(Tensor& tensor, const nb::dlpack::dltensor& from) {
  std::int64_t contiguous = 1;
  bool empty = from.strides == nullptr;
  for (int i = 0; i < from.ndim; ++i) empty = empty || from.shape[i] == 0;
  for (int i = from.ndim - 1; i >= 0; --i) {
    const auto at = static_cast<std::size_t>(i);
    tensor.shape[at] = from.shape[i];
    tensor.strides[at] = empty || from.shape[i] == 1 ? contiguous : from.strides[i];
    contiguous *= from.shape[i];
  }
}

bool is_numpy(nb::handle object) {
  static PyTypeObject* numpy_array = nullptr;
  if (numpy_array == nullptr) {
    nb::object numpy = nb::borrow(PyDict_GetItemString(PyImport_GetModuleDict(), "numpy"));
    if (!numpy.is_valid()) return false;
    numpy_array =
        reinterpret_cast<PyTypeObject*>(nb::object(numpy.attr("ndarray")).release().ptr());
  }
  return PyObject_TypeCheck(object.ptr(), numpy_array);
}

// The stream on which torch works on this GPU now, if the array is torch's; else `otherwise`. For a
// torch whose tensors have no table (before December 2025).
void* current_stream_of_torch(nb::handle array, std::int32_t gpu, void* otherwise) {
  static PyTypeObject* tensor = nullptr;
  static nb::handle ask;
  if (tensor == nullptr) {
    nb::object torch = nb::borrow(PyDict_GetItemString(PyImport_GetModuleDict(), "torch"));
    if (!torch.is_valid()) return otherwise;
    ask = nb::object(torch.attr("_C").attr("_cuda_getCurrentRawStream")).release();
    tensor = reinterpret_cast<PyTypeObject*>(nb::object(torch.attr("Tensor")).release().ptr());
  }
  if (!PyObject_TypeCheck(array.ptr(), tensor)) return otherwise;
  return reinterpret_cast<void*>(nb::cast<std::uintptr_t>(ask(gpu)));
}

nb::object new_numpy(DType dtype, const Shape& shape) {
  static const nb::handle empty = nb::object(nb::module_::import_("numpy").attr("empty")).release();
  nb::object sizes = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  for (std::size_t i = 0; i < shape.size(); ++i) {
    PyTuple_SetItem(sizes.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(shape[i]));
  }
  return empty(sizes, numpy_name(dtype));
}

void keep_message(void* context, const char*, const char* message) {
  *static_cast<std::string*>(context) = message;
}

nb::object new_by_table(const ExchangeTable& table, DType dtype, Shape shape, Device device) {
  nb::dlpack::dltensor prototype;
  prototype.device = {static_cast<std::int32_t>(device.type), device.index};
  prototype.ndim = static_cast<std::int32_t>(shape.size());
  prototype.dtype = dlpack_dtype(dtype);
  prototype.shape = shape.data();
  std::string message;
  ManagedTensor* managed = nullptr;
  if (table.allocate(&prototype, &managed, &message, keep_message) != 0) {
    PyErr_Clear();
    throw Error(ErrorCode::out_of_memory, "an output could not be allocated: " + message);
  }
  void* object = nullptr;
  if (table.object_from_managed(managed, &object) != 0) throw nb::python_error();
  return nb::steal(static_cast<PyObject*>(object));
}

}  // namespace

void refuse(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

std::string kind_of(nb::handle object) {
  return nb::cast<std::string>(nb::borrow<nb::object>(object.type()).attr("__name__"));
}

Call::Call(const char* op, nb::handle ctx) : op_(op) {
  if (ctx.is_none()) return;
  if (!nb::isinstance<Context>(ctx)) {
    refuse(std::string(op) + ": ctx is a " + kind_of(ctx) +
           "; give a tessera.Context, or leave it out");
  }
  ctx_ = nb::cast<Context*>(ctx);
}

Context& Call::context() {
  if (ctx_ == nullptr) ctx_ = &default_context(device_);
  return *ctx_;
}

void Call::found_on(Device device) {
  if (!has_device_) device_ = device;
  has_device_ = true;
}

Tensor Call::input(const char* name, nb::handle array) {
  return array.is_none() ? Tensor() : view(name, array, false);
}

Tensor Call::output(const char* name, nb::handle array) {
  return array.is_none() ? Tensor() : view(name, array, true);
}

Tensor Call::output(const char* name, nb::object& array, nb::handle like, DType dtype,
                    const Shape& shape) {
  if (array.is_none()) array = new_array(like, dtype, shape, device_);
  return view(name, array, true);
}

Tensor Call::view(const char* name, nb::handle array, bool writable) {
  if (const OwnedTensor* own = try_owned_tensor(array)) {
    Tensor tensor = own->view;
    tensor.read_only = !writable;
    found_on(tensor.device);
    return tensor;
  }
  if (exchange_table(array) != nullptr) return through_table(name, array, writable);
  return through_capsule(name, array, writable);
}

Tensor Call::through_table(const char* name, nb::handle array, bool writable) {
  const ExchangeTable& table = *exchange_table(array);
  nb::dlpack::dltensor from;
  if (table.view_of_object(array.ptr(), &from) != 0) {
    const nb::python_error error;
    const auto text = nb::cast<std::string>(nb::str(error.value()));  // below: where in PyTorch
    refuse(std::string(op_) + ": " + name +
           " cannot be viewed: " + text.substr(0, text.find('\n')));
  }
  if (from.device.device_type == static_cast<int>(DeviceType::cuda) &&
      table.current_stream(from.device.device_type, from.device.device_id, &stream_) != 0) {
    throw nb::python_error();
  }
  return checked(name, from, static_cast<char*>(from.data) + from.byte_offset, writable);
}

Tensor Call::through_capsule(const char* name, nb::handle array, bool writable) {
  const std::string where = std::string(op_) + ": " + name;
  if (PyUnicode_Check(array.ptr()) || PyBytes_Check(array.ptr())) {
    refuse(where + " is a " + kind_of(array) +
           "; give an array (numpy, torch, or any with DLPack)");
  }
  nb::ndarray<nb::ro> read;
  nb::ndarray<> written;
  if (writable && nb::try_cast(array, written)) {
    read = nb::ndarray<nb::ro>(written);
  } else if (!nb::try_cast(array, read)) {
    refuse(where + " is a " + kind_of(array) +
           "; give an array (numpy, torch, or any with DLPack), in native byte order");
  } else if (writable) {
    refuse(where + " is read-only; give an array that can be written to");
  }
  nb::dlpack::dltensor from;
  from.device = {read.device_type(), read.device_id()};
  from.ndim = static_cast<std::int32_t>(read.ndim());
  from.dtype = read.dtype();
  from.shape = const_cast<std::int64_t*>(read.shape_ptr());
  from.strides = const_cast<std::int64_t*>(read.stride_ptr());
  const Tensor tensor = checked(name, from, const_cast<void*>(read.data()), writable);
  if (tensor.device.is_cuda()) {
    stream_ = current_stream_of_torch(array, tensor.device.index, stream_);
  }
  imported_.push_back(std::move(read));
  return tensor;
}

Tensor Call::checked(const char* name, const nb::dlpack::dltensor& from, void* data,
                     bool writable) {
  const std::string where = std::string(op_) + ": " + name;
  if (from.ndim < 1 || from.ndim > kMaxRank) {
    refuse(where + " has " + std::to_string(from.ndim) + " dimensions; Tessera takes 1 to " +
           std::to_string(kMaxRank));
  }
  Tensor tensor;
  tensor.data = data;
  tensor.dtype = dtype_from_dlpack(from.dtype, where);
  tensor.read_only = !writable;
  tensor.device = device_of(from, where);
  tensor.rank = from.ndim;
  set_strides(tensor, from);
  found_on(tensor.device);
  return tensor;
}

nb::object new_array(nb::handle like, DType dtype, const Shape& shape, Device device) {
  if (const ExchangeTable* table = exchange_table(like)) {
    return new_by_table(*table, dtype, shape, device);
  }
  if (device.is_cpu() && is_numpy(like) && numpy_name(dtype) != nullptr) {
    return new_numpy(dtype, shape);
  }
  return new_owned_tensor(dtype, shape, device);
}

Shape shape_of(const Tensor& tensor) {
  return Shape(tensor.shape.begin(), tensor.shape.begin() + tensor.rank);
}

Shape with_last(const Tensor& tensor, std::int64_t last) {
  Shape shape = shape_of(tensor);
  if (!shape.empty()) shape.back() = last;
  return shape;
}

Shape without_last(const Tensor& tensor) {
  Shape shape = shape_of(tensor);
  if (!shape.empty()) shape.pop_back();
  if (shape.empty()) shape.push_back(1);
  return shape;
}

}  // namespace tessera::python
