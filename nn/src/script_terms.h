// How terms (python/roformer_cpp/terms.py), parameters and buffers cross between C++ and Python, and errors to Python.
#pragma once

#include <ATen/core/Dict.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "rf/io/error.h"
#include "rf/io/shown_text.h"
#include "rf/nn/parameter.h"
#include "rf/ops/terms.h"

namespace rf::nn {

using TensorDict = c10::Dict<std::string, at::Tensor>;

// Shared storage, by name.
TensorDict named(const torch::OrderedDict<std::string, at::Tensor>& tensors);

// Terms as flat arguments of operators, for torch.compile and torch.func: the defined tensors; their names, "query_cos"
// and "query_sin" for a rotation, and for other terms the names in Terms without dimension letters; and two numbers for
// each tensor, which are lo and hi of a table and unused for other terms.
struct ScriptTerms {
  at::TensorList tensors;
  const std::vector<std::string>& names;
  at::IntArrayRef ranges;
  std::string_view layout;
  std::optional<double> scale;
};
#define RF_SCRIPT_TERMS_SCHEMA "Tensor[] terms, str[] term_names, int[] term_ranges, str layout, float? scale"
// Throws Error for an unknown name or half of a pair.
ops::Terms terms_of(const ScriptTerms& given);

// The same lists as a result.
using TermLists = std::tuple<std::vector<at::Tensor>, std::vector<std::string>, std::vector<int64_t>, std::string,
                             std::optional<double>>;
TermLists lists_of(const ops::Terms& terms);

// The parameters and buffers of a module that Python keeps (python/roformer_cpp/_script_module.py). Python owns
// torch.nn.Parameters and passes them to each call, so a call uses their current state (assigned, cast, sharded,
// parametrized).
class ScriptTensors {
 public:
  // where: for messages.
  ScriptTensors(const torch::nn::Module& module, const char* where);

  TensorDict parameters() const { return parameters_; }
  TensorDict buffers() const { return buffers_; }
  // Frees the values here; callers that requested them above keep them.
  void release() const;

  // While the result exists, the module computes with `given`: all parameters in their order, then all buffers. Throws
  // Error for a wrong number, a wrong shape, or a tensor without values.
  ParameterScope in_place(const std::vector<at::Tensor>& given) const;
  // The values, until release(); for code that reads modules by name.
  void take(const std::vector<at::Tensor>& given) const;

 private:
  void check(const std::vector<at::Tensor>& given) const;

  const char* where_;
  TensorDict parameters_, buffers_;
  std::vector<std::string> names_;
  std::vector<at::Tensor> registered_;
};

// Returns the result of `compute`, for functions that check arguments; its Error becomes c10::ValueError, ValueError in
// Python. A long message is cut.
template <class Compute>
auto with_value_errors(const Compute& compute) {
  try {
    return compute();
  } catch (const Error& error) {
    C10_THROW_ERROR(ValueError, io::message_text(error.what()));
  }
}

// The same for functions that read files. A missing file becomes c10::IndexError with this mark, which model.py turns
// into FileNotFoundError; a damaged file becomes RuntimeError.
constexpr const char* kMissingFile = "missing file: ";
template <class Compute>
auto with_file_errors(const Compute& compute) {
  try {
    return compute();
  } catch (const MissingFileError& error) {
    C10_THROW_ERROR(IndexError, kMissingFile + io::message_text(error.what()));
  } catch (const ArgumentError& error) {
    C10_THROW_ERROR(ValueError, io::message_text(error.what()));
  } catch (const Error& error) {
    throw std::runtime_error(io::message_text(error.what()));
  }
}

}  // namespace rf::nn
