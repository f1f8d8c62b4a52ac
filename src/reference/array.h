// A dense row-major array of float64, the type that all references compute with.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <numeric>
#include <utility>
#include <vector>

namespace tessera::reference {

struct Array {
  std::vector<std::int64_t> shape;
  std::vector<double> data;

  Array() = default;
  explicit Array(std::vector<std::int64_t> shape_, double value = 0.0)
      : shape(std::move(shape_)), data(count(shape), value) {}

  std::int64_t size(int dim) const { return shape[dim < 0 ? dim + shape.size() : dim]; }
  std::int64_t numel() const { return static_cast<std::int64_t>(data.size()); }
  bool empty() const { return data.empty(); }

  // at(b, s, h, d): one index for each dimension.
  template <typename... Index>
  double& at(Index... index) {
    return data[offset({static_cast<std::int64_t>(index)...})];
  }
  template <typename... Index>
  double at(Index... index) const {
    return data[offset({static_cast<std::int64_t>(index)...})];
  }

  // row(b, s, h): the numbers of the last dimension. Loops over them are much faster than at().
  template <typename... Index>
  double* row(Index... index) {
    return data.data() + offset({static_cast<std::int64_t>(index)..., 0});
  }
  template <typename... Index>
  const double* row(Index... index) const {
    return data.data() + offset({static_cast<std::int64_t>(index)..., 0});
  }

  static std::size_t count(const std::vector<std::int64_t>& shape) {
    return static_cast<std::size_t>(
        std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()));
  }

 private:
  std::size_t offset(std::initializer_list<std::int64_t> index) const {
    std::int64_t at = 0;
    auto size = shape.begin();
    for (std::int64_t i : index) at = at * *size++ + i;
    return static_cast<std::size_t>(at);
  }
};

}  // namespace tessera::reference
