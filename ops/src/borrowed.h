// Objects that the arguments of core point into.
#pragma once

#include <ATen/core/Tensor.h>

#include <type_traits>

namespace rf::ops {

// An object whose pointers go into arguments of core: the caller keeps it until core returns. It does not bind to a
// temporary, such as x.contiguous(), which may be gone by then; every function that takes pointers out of tensors for
// core takes them from these.
template <class T>
class Borrowed {
 public:
  Borrowed(const T& kept) : kept_(kept) {}  // implicit: callers pass their variables
  Borrowed(const T&&) = delete;
  const T& operator*() const { return kept_; }
  const T* operator->() const { return &kept_; }

 private:
  const T& kept_;
};

static_assert(std::is_convertible_v<const at::Tensor&, Borrowed<at::Tensor>>);
static_assert(!std::is_convertible_v<at::Tensor, Borrowed<at::Tensor>>);
static_assert(!std::is_convertible_v<const at::Tensor, Borrowed<at::Tensor>>);

// Null without a tensor.
inline const void* data_or_null(Borrowed<at::Tensor> x) { return x->defined() ? x->const_data_ptr() : nullptr; }

inline void* mutable_or_null(Borrowed<at::Tensor> x) { return x->defined() ? x->mutable_data_ptr() : nullptr; }

}  // namespace rf::ops
