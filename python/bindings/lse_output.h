// The output `lse` of attention and of ring attention: None, an array to write to, or True for a
// new one, which is then a part of the result.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

#include "call.h"

namespace tessera::python {

class LseOutput {
 public:
  explicit LseOutput(nb::object given)
      : wanted_(given.ptr() == Py_True),
        array_(given.ptr() == Py_True || given.ptr() == Py_False ? nb::none() : std::move(given)) {}

  // f32 [batch, heads, n_q] for a q of [batch, n_q, heads, dim]. A q of another rank is the op's to
  // refuse.
  Tensor tensor(Call& call, nb::handle like, const Tensor& q) {
    if (!wanted_ || q.rank != 4) return call.output("lse", array_);
    return call.output("lse", array_, like, DType::f32, {q.shape[0], q.shape[2], q.shape[1]});
  }
  // out, or (out, lse).
  nb::object result(const nb::object& out) const {
    return wanted_ ? nb::object(nb::make_tuple(out, array_)) : out;
  }

 private:
  bool wanted_;
  nb::object array_;
};

}  // namespace tessera::python
