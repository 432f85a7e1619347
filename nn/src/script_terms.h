// Dictionaries of tensors, the form in which terms (python/roformer_cpp/terms.py), parameters and buffers cross to
// Python.
#pragma once

#include <ATen/core/Dict.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <string>

#include "rf/ops/terms.h"

namespace rf::nn {

using TensorDict = c10::Dict<std::string, at::Tensor>;

// Shared storage, by name.
TensorDict named(const torch::OrderedDict<std::string, at::Tensor>& tensors);

// Rotations: "query_cos", "query_sin", ..; tables: "key_table" (rows) with "key_table_window" (int64 [lo, hi]), ..;
// "halves" (any value) for that layout; "scale" (float64 scalar); the others by their names in Terms without the
// dimension letters. Absent terms are absent keys.
TensorDict to_dict(const ops::Terms& terms);
// Throws Error for an unknown key or half of a pair.
ops::Terms terms_of_dict(const TensorDict& dict);

}  // namespace rf::nn
