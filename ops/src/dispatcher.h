// Operators as PyTorch's dispatcher calls them, found by their names. An operator with many arguments has structs for
// them, each with a function
//
//   for_each_argument(arguments, visit)   calls visit(member) for each argument, in the order of the schema
//
// from which follow its kernels for the dispatcher (boxed), its calls (dispatch), and what a backward keeps of a call
// (autograd.h). A member is a tensor, undefined for None; a number or a name; or an array of pointers to members, for a
// list. Members at the end that a schema lacks are ignored.
//
// A struct describes such an operator: Call and Results, the types of its arguments and results (a tuple of tensors);
// kName and, with a backward, kBackwardName.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

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
  TORCH_CHECK_VALUE(list.size() == kCount, "[operator] wanted must have ", kCount, " flags, got ", list.size());
  std::array<bool, kCount> flags{};
  for (size_t i = 0; i < kCount; ++i) flags[i] = list[i];
  return flags;
}

inline std::optional<at::Tensor> optional(const at::Tensor& x) { return x.defined() ? std::optional(x) : std::nullopt; }

template <class T, class Arguments>
concept ArgumentsOf = std::is_same_v<std::remove_const_t<T>, Arguments>;

// The first arguments of a backward operator, before the forward's: the gradient of the forward's first result, some of
// its results, and which gradients are wanted. The operator returns the wanted gradients.
template <size_t kKept, size_t kInputs>
struct BackwardArguments {
  at::Tensor grad = {};
  std::array<at::Tensor, kKept> results = {};
  std::array<bool, kInputs> wanted{};
};
template <class T>
concept AnyBackwardArguments = requires(const T& x) {
  x.grad, x.results, x.wanted;
};
void for_each_argument(AnyBackwardArguments auto& given, const auto& visit) {
  visit(given.grad);
  for (auto& result : given.results) visit(result);
  visit(given.wanted);
}

// A member as the dispatcher stores it.
template <class T>
c10::IValue to_value(const T& x) {
  return x;
}
inline c10::IValue to_value(const at::Tensor& x) { return optional(x); }
template <size_t kCount>
c10::IValue to_value(const std::array<bool, kCount>& flags) {
  return std::vector<bool>(flags.begin(), flags.end());
}
template <size_t kCount>
c10::IValue to_value(const std::array<const at::Tensor*, kCount>& members) {
  c10::List<std::optional<at::Tensor>> list;
  for (const at::Tensor* member : members) list.push_back(optional(*member));
  return list;
}
template <size_t kCount>
c10::IValue to_value(const std::array<const int64_t*, kCount>& members) {
  c10::List<int64_t> list;
  for (const int64_t* member : members) list.push_back(*member);
  return list;
}

// name: of the argument, in messages.
template <class T>
void from_value(const c10::IValue& value, const char* /*name*/, T& x) {
  x = value.to<T>();
}
inline void from_value(const c10::IValue& value, const char* /*name*/, at::Tensor& x) {
  x = value.toOptional<at::Tensor>().value_or(at::Tensor());
}
template <size_t kCount>
void from_value(const c10::IValue& value, const char* /*name*/, std::array<bool, kCount>& flags) {
  flags = flags_of<kCount>(value.toBoolList());
}
template <class T, size_t kCount>
void from_value(const c10::IValue& value, const char* name, std::array<T*, kCount>& members) {
  const auto list = value.toListRef();
  TORCH_CHECK_VALUE(list.size() == kCount, "[operator] ", name, " must have ", kCount, " entries, got ", list.size());
  for (size_t i = 0; i < kCount; ++i) from_value(list[i], name, *members[i]);
}

template <auto kKernel, class Function = decltype(kKernel)>
struct BoxedKernel;
template <auto kKernel, class Result, class... Structs>
struct BoxedKernel<kKernel, Result (*)(const Structs&...)> {
  static void run(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    const auto& arguments = op.schema().arguments();
    const size_t first = stack->size() - arguments.size();
    size_t number = 0;
    const auto read = [&](auto&& member) {
      if (number == arguments.size()) return;
      from_value((*stack)[first + number], arguments[number].name().c_str(), member);
      ++number;
    };
    std::tuple<Structs...> structs;
    std::apply([&](auto&... each) { (for_each_argument(each, read), ...); }, structs);
    Result result = std::apply(kKernel, structs);
    stack->resize(first);
    if constexpr (std::is_same_v<Result, std::vector<at::Tensor>>) {
      torch::jit::push(*stack, std::move(result));
    } else {
      std::apply([&](auto&... each) { torch::jit::push(*stack, std::move(each)...); }, result);
    }
  }
};

// A kernel for the dispatcher. kKernel takes structs whose arguments follow each other in the schema, and returns a
// tuple or a list of tensors.
template <auto kKernel>
torch::CppFunction boxed() {
  return torch::CppFunction::makeFromBoxedFunction<BoxedKernel<kKernel>::run>();
}

template <class Result, class... Structs>
Result call_operator(const c10::OperatorHandle& op, const Structs&... structs) {
  torch::jit::Stack stack;
  const auto push = [&](const auto& member) {
    if (stack.size() < op.schema().arguments().size()) stack.push_back(to_value(member));
  };
  (for_each_argument(structs, push), ...);
  op.callBoxed(stack);
  if constexpr (std::is_same_v<Result, std::vector<at::Tensor>>) {
    return stack[0].toTensorVector();
  } else {
    return [&]<size_t... kIndices>(std::index_sequence<kIndices...>) {
      return Result(std::move(stack[kIndices]).toTensor()...);
    }
    (std::make_index_sequence<std::tuple_size_v<Result>>());
  }
}

template <class Operator>
typename Operator::Results dispatch(const typename Operator::Call& call) {
  static const c10::OperatorHandle op = find_schema(Operator::kName);
  return call_operator<typename Operator::Results>(op, call);
}

template <class Operator, class Backward>
std::vector<at::Tensor> dispatch_backward(const Backward& given, const typename Operator::Call& call) {
  static const c10::OperatorHandle op = find_schema(Operator::kBackwardName);
  return call_operator<std::vector<at::Tensor>>(op, given, call);
}

}  // namespace rf::ops
