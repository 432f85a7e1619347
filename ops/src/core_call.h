// Calls of core: element types, pointers into tensors, names of options, threads, and status codes as exceptions of
// PyTorch.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Formatting.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "rf/status.h"

namespace rf::ops {

// nullopt for types that the kernels do not support.
inline std::optional<rf_dtype> core_dtype(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float: return RF_F32;
    case c10::ScalarType::Double: return RF_F64;
    case c10::ScalarType::BFloat16: return RF_BF16;
    case c10::ScalarType::Half: return RF_F16;
    default: return std::nullopt;
  }
}

// The value that belongs to an option's name; for other names c10::ValueError `[where] option must be "a" or "b"`.
template <class Value>
Value parse_name(const char* where, const char* option, std::string_view name,
                 std::initializer_list<std::pair<const char*, Value>> values) {
  for (const auto& [each, value] : values) {
    if (name == each) return value;
  }
  std::string known;
  size_t left = values.size();
  for (const auto& [each, value] : values) {
    known += c10::str('"', each, --left > 1 ? "\", " : left == 1 ? "\" or " : "\"");
  }
  TORCH_CHECK_VALUE(false, "[", where, "] ", option, " must be ", known, ", got \"", name, "\"");
}

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

// like_name: how messages call `like`.
inline void check_device(const char* where, const char* name, const at::Tensor& x, const char* like_name,
                         const at::Tensor& like) {
  TORCH_CHECK_VALUE(!x.defined() || x.device() == like.device(), "[", where, "] ", name, " must be on the device of ",
                    like_name, ", ", like.device(), ", got ", x.device());
}

// The gradients that are wanted; others are undefined.
inline std::vector<at::Tensor> defined_of(std::vector<at::Tensor> grads) {
  std::erase_if(grads, [](const at::Tensor& grad) { return !grad.defined(); });
  return grads;
}

// A bad argument becomes ValueError in Python, c10::ValueError in C++.
inline void check_status(rf_status status) {
  if (status == RF_OK) return;
  TORCH_CHECK_VALUE(status != RF_INVALID_ARGUMENT, rf_last_error());
  TORCH_CHECK_NOT_IMPLEMENTED(status != RF_NOT_IMPLEMENTED, rf_last_error());
  TORCH_CHECK_WITH(OutOfMemoryError, status != RF_OUT_OF_MEMORY, rf_last_error());
  TORCH_CHECK(false, rf_last_error());
}

// Every kernel of core is called through this. OpenMP, and with it core, keeps the number of threads per calling
// thread. at::get_num_threads applies torch.set_num_threads to a calling thread that has not asked before.
template <class... Parameters, class... Arguments>
void call_core(rf_status (*kernel)(Parameters...), Arguments... arguments) {
  at::get_num_threads();
  check_status(kernel(arguments...));
}

}  // namespace rf::ops
