#include "tessera/model.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "load_options.h"
#include "names.h"

namespace tessera::python {

namespace nb = nanobind;
using namespace nb::literals;

LoadOptions load_options(const std::optional<std::string>& dtype, const std::string& weights,
                         const std::vector<std::string>& keep_dense, bool mmap) {
  LoadOptions load;
  if (dtype) load.dtype = parse_dtype(*dtype);
  if (weights != "dense") {
    const Format format = parse_format(weights);
    // Groups of 32, as the command line packs int4.
    load.pack = QuantizeOptions{.format = format, .group = format == Format::int4 ? 32 : -1};
  }
  load.keep_dense = keep_dense;
  if (!mmap) load.files = FileAccess::copy;
  return load;
}

namespace {

std::unique_ptr<Model> load(Context& ctx, const std::filesystem::path& directory,
                            const std::optional<std::string>& dtype, const std::string& weights,
                            const std::vector<std::string>& keep_dense, bool mmap) {
  const LoadOptions options = load_options(dtype, weights, keep_dense, mmap);
  const nb::gil_scoped_release released;
  return load_model(ctx, directory, options);
}

}  // namespace

void bind_model(nb::module_& m) {
  nb::class_<ModelConfig>(m, "ModelConfig", "What config.json says, read and checked.")
      .def_ro("architecture", &ModelConfig::architecture)
      .def_ro("layers", &ModelConfig::layers)
      .def_ro("hidden", &ModelConfig::hidden)
      .def_ro("heads", &ModelConfig::heads)
      .def_ro("kv_heads", &ModelConfig::kv_heads)
      .def_ro("head_dim", &ModelConfig::head_dim)
      .def_ro("vocab", &ModelConfig::vocab)
      .def_ro("max_positions", &ModelConfig::max_positions)
      .def_ro("bos", &ModelConfig::bos)
      .def_ro("eos", &ModelConfig::eos);
  nb::class_<Model>(m, "Model", "A language model: the weights of a checkpoint.")
      .def_prop_ro("config", &Model::config, nb::rv_policy::reference_internal)
      .def_prop_ro("dtype", [](const Model& self) { return name(self.dtype()); })
      .def_prop_ro("weight_bytes", &Model::weight_bytes)
      .def_prop_ro("notes", [](const Model& self) { return self.notes(); });
  m.def("load_model", &load, "ctx"_a, "directory"_a, nb::kw_only(), "dtype"_a = nb::none(),
        "weights"_a = "dense", "keep_dense"_a = std::vector<std::string>(), "mmap"_a = true,
        "Reads a Hugging Face checkpoint.");
}

}  // namespace tessera::python
