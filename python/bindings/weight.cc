#include "tessera/weight.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <bit>

#include "bind.h"
#include "owned_tensor.h"
#include "weight_object.h"

namespace tessera::python {

using namespace nb::literals;

namespace {

using Ints = std::vector<std::int64_t>;

std::array<Tensor*, 4> parts_of(Weight& weight) {
  return {&weight.data, &weight.scales, &weight.zeros, &weight.row_scales};
}

constexpr std::size_t kHead = 6, kPart = 4;

// The weight without its memory, as a list of numbers: format, layout, out, in, group, the bits of
// tensor_scale; then offset, dtype, rows and columns of each part.
Ints weight_spec(WeightObject& self) {
  if (self.weight.format == Format::dense) refuse("a dense Weight has no packed parts to describe");
  Ints spec{static_cast<std::int64_t>(self.weight.format),
            static_cast<std::int64_t>(self.weight.layout),
            self.weight.out_features,
            self.weight.in_features,
            self.weight.group,
            std::bit_cast<std::int32_t>(self.weight.tensor_scale)};
  const auto parts = parts_of(self.weight);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Tensor& part = *parts[i];
    spec.insert(spec.end(), {self.offsets[i], static_cast<std::int64_t>(part.dtype), part.shape[0],
                             part.shape[1]});
  }
  return spec;
}

WeightObject weight_from_spec(nb::object storage, const Ints& spec) {
  WeightObject object;
  auto parts = parts_of(object.weight);
  if (spec.size() != kHead + kPart * parts.size() || spec[0] < 1 ||
      spec[0] > static_cast<std::int64_t>(Format::fp8) || spec[1] < 0 ||
      spec[1] > static_cast<std::int64_t>(WeightLayout::cuda_tiles)) {
    refuse("this list of numbers describes no packed weight; make it with Weight.spec()");
  }
  Call call("Weight.from_spec", nb::none());
  const Tensor bytes = call.input("storage", storage);
  if (bytes.dtype != DType::u8 || !bytes.is_contiguous()) {
    refuse("Weight.from_spec: storage must be contiguous bytes (uint8)");
  }
  object.weight.format = static_cast<Format>(spec[0]);
  object.weight.layout = static_cast<WeightLayout>(spec[1]);
  object.weight.out_features = spec[2];
  object.weight.in_features = spec[3];
  object.weight.group = spec[4];
  object.weight.tensor_scale = std::bit_cast<float>(static_cast<std::int32_t>(spec[5]));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::int64_t* part = spec.data() + kHead + kPart * i;
    object.offsets.push_back(part[0]);
    if (part[0] < 0) continue;
    if (part[1] < 0 || part[1] > static_cast<std::int64_t>(DType::i64)) {
      refuse("Weight.from_spec: a part has no dtype that Tessera knows");
    }
    *parts[i] = Tensor(static_cast<const void*>(nullptr), static_cast<DType>(part[1]),
                       {part[2], part[3]}, bytes.device);
    if (part[0] + parts[i]->bytes() > bytes.bytes()) {
      refuse("Weight.from_spec: storage has " + std::to_string(bytes.bytes()) +
             " bytes, and a part ends after " + std::to_string(part[0] + parts[i]->bytes()));
    }
  }
  object.array = std::move(storage);
  return object;
}

nb::object storage_of(nb::handle handle) {
  const WeightObject& self = nb::cast<const WeightObject&>(handle);
  if (!self.storage) return self.array;
  return nb::cast(OwnedTensor{self.storage, self.storage->tensor()});
}

}  // namespace

WeightObject make_weight(PackedWeight packed) {
  WeightObject object;
  object.weight = packed.weight;
  object.storage = std::make_shared<const Buffer>(std::move(packed.storage));
  const char* base = static_cast<const char*>(object.storage->data());
  for (const Tensor* part : parts_of(object.weight)) {
    object.offsets.push_back(part->defined() ? static_cast<const char*>(part->data) - base : -1);
  }
  return object;
}

Weight weight_argument(Call& call, const char* name, nb::handle object) {
  if (!nb::isinstance<WeightObject>(object)) {
    const Tensor matrix = call.input(name, object);
    return matrix.defined() ? Weight::dense(matrix) : Weight();
  }
  const WeightObject& held = nb::cast<const WeightObject&>(object);
  if (held.storage) {
    call.found_on(held.weight.data.device);
    return held.weight;
  }
  const Tensor memory = call.input(name, held.array);
  if (held.weight.format == Format::dense) return Weight::dense(memory);
  Weight weight = held.weight;
  auto parts = parts_of(weight);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (held.offsets[i] < 0) continue;
    parts[i]->data = static_cast<char*>(memory.data) + held.offsets[i];
    parts[i]->device = memory.device;
  }
  return weight;
}

void bind_weight(nb::module_& m) {
  nb::class_<FormatInfo>(m, "FormatInfo",
                         "A number format of packed weights.\n\n"
                         ">>> first = tessera.formats()[0]\n"
                         ">>> first.name, first.bits, first.default_group\n('nvfp4', 4, 16)")
      .def_prop_ro("name", [](const FormatInfo& self) { return self.name; })
      .def_ro("bits", &FormatInfo::bits)
      .def_ro("default_group", &FormatInfo::default_group)
      .def_prop_ro("summary", [](const FormatInfo& self) { return self.summary; });
  m.def(
      "formats",
      [] {
        const auto all = formats();
        return std::vector<FormatInfo>(all.begin(), all.end());
      },
      "The packed formats, a list of FormatInfo.\n\n"
      ">>> [f.name for f in tessera.formats()]\n['nvfp4', 'mxfp4', 'nf4', 'int4', 'int8', 'fp8']");
  nb::class_<WeightObject>(
      m, "Weight",
      "A matrix of weights [out, in], dense or packed. quantize() packs one,\n"
      "prepare() lays it out for the kernels of a device.\n\n"
      ">>> w = tessera.quantize(numpy.ones((64, 32), 'float32'), format='nvfp4')\n"
      ">>> w.shape, w.format, w.nbytes\n((64, 32), 'nvfp4', 1156)")
      .def_static(
          "dense",
          [](nb::object matrix) {
            Call call("Weight.dense", nb::none());
            WeightObject object;
            object.weight = Weight::dense(call.input("matrix", matrix));
            object.array = std::move(matrix);
            return object;
          },
          "matrix"_a, "A view of an array [out, in]; it is not copied.")
      .def_prop_ro("format", [](const WeightObject& self) { return name(self.weight.format); })
      .def_prop_ro("layout",
                   [](const WeightObject& self) {
                     constexpr const char* kNames[] = {"published", "cpu_tiles", "cuda_tiles"};
                     return kNames[static_cast<int>(self.weight.layout)];
                   })
      .def_prop_ro("shape",
                   [](const WeightObject& self) {
                     return nb::make_tuple(self.weight.out_features, self.weight.in_features);
                   })
      .def_prop_ro("group", [](const WeightObject& self) { return self.weight.group; })
      .def_prop_ro("nbytes", [](const WeightObject& self) { return self.weight.bytes(); })
      .def_prop_ro("tensor_scale",
                   [](const WeightObject& self) { return self.weight.tensor_scale; })
      .def_prop_ro("storage", &storage_of,
                   "The memory of all packed parts, as uint8 bytes: not a copy.")
      .def("spec", &weight_spec,
           "Where the parts lie in `storage`, as numbers; from_spec() makes the Weight again.")
      .def_static("from_spec", &weight_from_spec, "storage"_a, "spec"_a)
      .def("__repr__",
           [](const WeightObject& self) { return "Weight(" + to_string(self.weight) + ")"; });
}

}  // namespace tessera::python
