#include "tessera/mask.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "call.h"
#include "option_arguments.h"

namespace tessera::python {

using namespace nb::literals;

namespace {

using Ints = std::vector<std::int64_t>;

// A mask as a list of numbers, for operators whose arguments are tensors and numbers only:
// kind, left, right, n_sink, then for blocks: block, q_blocks, k_blocks, offsets, indices.
Ints mask_spec(const Mask& mask) {
  Ints spec{static_cast<std::int64_t>(mask.kind()), mask.left(), mask.right(), mask.n_sink()};
  if (mask.kind() != Mask::Kind::blocks) return spec;
  const BlockMask& pattern = mask.pattern();
  spec.insert(spec.end(), {pattern.block(), pattern.q_blocks(), pattern.k_blocks()});
  spec.insert(spec.end(), pattern.offsets().begin(), pattern.offsets().end());
  spec.insert(spec.end(), pattern.indices().begin(), pattern.indices().end());
  return spec;
}

Mask mask_from_spec(const Ints& spec) {
  if (spec.size() < 4) refuse("a mask's list of numbers has at least 4 of them");
  switch (static_cast<Mask::Kind>(spec[0])) {
    case Mask::Kind::full:
      return Mask::full();
    case Mask::Kind::causal:
      return Mask::causal();
    case Mask::Kind::window:
      return Mask::window(spec[1], spec[2]);
    case Mask::Kind::sinks:
      return Mask::sinks(spec[3], spec[1] + 1);
    case Mask::Kind::blocks:
      break;
  }
  if (spec[0] != static_cast<std::int64_t>(Mask::Kind::blocks) || spec.size() < 8 || spec[5] < 1 ||
      static_cast<std::int64_t>(spec.size()) < 8 + spec[5]) {
    refuse("this list of numbers describes no mask; make it with Mask.spec()");
  }
  const auto offsets_end = spec.begin() + 8 + spec[5];
  const Ints offsets(spec.begin() + 7, offsets_end);
  const std::vector<std::int32_t> indices(offsets_end, spec.end());
  return Mask::blocks(BlockMask::from_csr(spec[4], spec[5], spec[6], offsets, indices),
                      spec[2] == 0);
}

}  // namespace

Mask mask_argument(const char* op, nb::handle mask) {
  return option_argument<Mask>(op, "mask", mask, "tessera.Mask, as in mask=tessera.Mask.causal()");
}

void bind_mask(nb::module_& m) {
  nb::class_<BlockMask>(
      m, "BlockMask",
      "A sparse pattern of square blocks, [q_blocks, k_blocks] of them, each of block queries and\n"
      "block keys.\n\n"
      ">>> pattern = tessera.BlockMask.local(block=64, q_blocks=4, k_blocks=4, radius=1)\n"
      ">>> pattern.visited, pattern.contains(0, 2)\n(10, False)\n"
      ">>> mask = tessera.Mask.blocks(pattern, causal=True)")
      .def_static(
          "from_csr",
          [](std::int64_t block, std::int64_t q_blocks, std::int64_t k_blocks, const Ints& offsets,
             const std::vector<std::int32_t>& indices) {
            return BlockMask::from_csr(block, q_blocks, k_blocks, offsets, indices);
          },
          "block"_a, "q_blocks"_a, "k_blocks"_a, "offsets"_a, "indices"_a)
      .def_static("local", &BlockMask::local, "block"_a, "q_blocks"_a, "k_blocks"_a, "radius"_a)
      .def_static("random", &BlockMask::random, "block"_a, "q_blocks"_a, "k_blocks"_a, "per_row"_a,
                  "seed"_a)
      .def_static("strided", &BlockMask::strided, "block"_a, "q_blocks"_a, "k_blocks"_a, "radius"_a,
                  "stride"_a)
      .def_prop_ro("visited", &BlockMask::visited, "Blocks that are computed.")
      .def("contains", &BlockMask::contains, "q_block"_a, "k_block"_a);
  nb::class_<Mask>(m, "Mask",
                   "Which keys a query may see.\n\n>>> tessera.Mask.sinks(n_sink=4, window=1020)\n"
                   "Mask.sinks(4, 1020)")
      .def(nb::init<>(), "Every key.")
      .def_static("full", &Mask::full, "Every key.")
      .def_static("causal", &Mask::causal, "Keys up to the query's own position.")
      .def_static("window", &Mask::window, "left"_a, "right"_a,
                  "Keys from p - left to p + right; -1 leaves a side open.")
      .def_static("sinks", &Mask::sinks, "n_sink"_a, "window"_a,
                  "The first n_sink keys and the last `window` ones up to the query's own.")
      .def_static("blocks", &Mask::blocks, "pattern"_a, "causal"_a = false)
      .def("allows", &Mask::allows, "i"_a, "p"_a, "j"_a,
           "May the query of row i at position p see key j?")
      .def("spec", &mask_spec, "The mask as a list of numbers; from_spec() makes it again.")
      .def_static("from_spec", &mask_from_spec, "spec"_a)
      .def(
          "__eq__",
          [](const Mask& self, nb::handle other) {
            return nb::isinstance<Mask>(other) &&
                   mask_spec(self) == mask_spec(nb::cast<const Mask&>(other));
          },
          "other"_a.none())
      .def("__hash__",
           [](const Mask& self) { return nb::hash(nb::tuple(nb::cast(mask_spec(self)))); })
      .def("__getstate__", &mask_spec)
      .def("__setstate__",
           [](Mask& self, const Ints& spec) { new (&self) Mask(mask_from_spec(spec)); })
      .def("__repr__", [](const Mask& self) { return "Mask." + self.to_string(); });
}

}  // namespace tessera::python
