#include "tessera/device.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind.h"

namespace tessera::python {

namespace nb = nanobind;

void bind_device(nb::module_& m) {
  nb::class_<DeviceInfo>(m, "DeviceInfo",
                         "One device, as `tessera devices` prints it.\n\n"
                         ">>> cpu = tessera.devices()[0]\n"
                         ">>> cpu.device, cpu.usable\n('cpu', True)")
      .def_prop_ro("device", [](const DeviceInfo& self) { return to_string(self.device); })
      .def_ro("name", &DeviceInfo::name)
      .def_ro("capability", &DeviceInfo::capability)
      .def_ro("memory_bytes", &DeviceInfo::memory_bytes)
      .def_ro("compute_units", &DeviceInfo::compute_units)
      .def_ro("unusable", &DeviceInfo::unusable, "Empty, or why this build cannot use the device.")
      .def_prop_ro("usable", &DeviceInfo::usable)
      .def("__repr__", [](const DeviceInfo& self) {
        return "DeviceInfo(" + to_string(self.device) + ", " + self.name + ")";
      });
  m.def("devices", &devices,
        "The CPU, then every GPU, including those that this build cannot use.\n\n"
        ">>> tessera.devices()[0].device\n'cpu'");
  m.def("cuda_status", &cuda_status,
        "One sentence: which GPUs can be used, or why none can.\n\n"
        ">>> sentence = tessera.cuda_status()");
}

}  // namespace tessera::python
