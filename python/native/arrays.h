// Numbers of C++ as NumPy arrays, which take over the memory.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace rf::python {

template <typename Value>
nanobind::object array_of(std::vector<Value> values, std::initializer_list<size_t> shape) {
  auto owned = std::make_unique<std::vector<Value>>(std::move(values));
  Value* const data = owned->data();
  const nanobind::capsule owner(owned.get(),
                                [](void* memory) noexcept { delete static_cast<std::vector<Value>*>(memory); });
  static_cast<void>(owned.release());
  return nanobind::cast(nanobind::ndarray<nanobind::numpy, Value>(data, shape, owner));
}

template <typename Value>
nanobind::object array_of(std::vector<Value> values) {
  const size_t size = values.size();
  return array_of(std::move(values), {size});
}

}  // namespace rf::python
