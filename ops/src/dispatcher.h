// Operators as PyTorch's dispatcher calls them: found by their names, and where they have many arguments, with a struct
// that is read from the dispatcher's stack and written to it, in the order of the schema.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/Exception.h>

#include <array>
#include <optional>
#include <string>
#include <utility>

namespace rf::ops {

// `name` with its namespace, for example "roformer::rope". Keep the result in a static, because the search takes a
// lock.
inline c10::OperatorHandle find_schema(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

template <class Signature>
c10::TypedOperatorHandle<Signature> find_operator(const char* name) {
  return find_schema(name).typed<Signature>();
}

template <size_t kCount>
std::array<bool, kCount> flags_of(const c10::List<bool>& list) {
  TORCH_CHECK_VALUE(list.size() == kCount, "[operator] the list must have ", kCount, " flags, got ", list.size());
  std::array<bool, kCount> flags{};
  for (size_t i = 0; i < kCount; ++i) flags[i] = list[i];
  return flags;
}

// Pops the arguments of a call off the stack, starting with the first.
class StackReader {
 public:
  StackReader(const c10::OperatorHandle& op, torch::jit::Stack& stack)
      : stack_(stack), next_(stack.size() - op.schema().arguments().size()), first_(next_) {}

  c10::IValue next() { return std::move(stack_[next_++]); }
  at::Tensor tensor() { return next().toTensor(); }
  // Undefined for None.
  at::Tensor optional_tensor() { return next().toOptional<at::Tensor>().value_or(at::Tensor()); }
  std::string text() { return next().toStringRef(); }
  double number() { return next().toDouble(); }
  int64_t integer() { return next().toInt(); }
  template <size_t kCount>
  std::array<bool, kCount> flags() {
    return flags_of<kCount>(next().toBoolList());
  }

  // Replaces the arguments, which have all been read, by the results.
  template <class... Results>
  void finish(Results&&... results) {
    stack_.resize(first_);
    torch::jit::push(stack_, std::forward<Results>(results)...);
  }

 private:
  torch::jit::Stack& stack_;
  size_t next_, first_;
};

// None where undefined.
inline c10::IValue none_or(const at::Tensor& x) { return x.defined() ? c10::IValue(x) : c10::IValue(); }

template <size_t kCount>
c10::List<bool> list_of(const std::array<bool, kCount>& flags) {
  c10::List<bool> list;
  for (const bool flag : flags) list.push_back(flag);
  return list;
}

}  // namespace rf::ops
