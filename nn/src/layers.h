// What the encoder and the heads are built of: handles to parameters, and plain functions of torch on them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>

#include <cstdint>
#include <map>
#include <string>

#include "rf/io/error.h"
#include "rf/model/config.h"
#include "rf/nn/dropout_key.h"
#include "rf/ops/ops.h"

namespace rf::nn {

struct Linear {
  at::Tensor weight, bias;  // undefined: not part of the model
  at::Tensor operator()(const at::Tensor& x) const { return at::linear(x, weight, bias); }
};

struct Norm {
  at::Tensor gain, bias;
  double eps = 0;
  at::Tensor operator()(const at::Tensor& x) const { return at::layer_norm(x, gain.sizes(), gain, bias, eps); }
};

at::Tensor activate(Activation activation, const at::Tensor& x);

// A model's parameters by full name.
class Parameters {
 public:
  Parameters() = default;
  Parameters(std::map<std::string, at::Tensor> by_name, double eps) : by_name_(std::move(by_name)), eps_(eps) {}
  at::Tensor at(const std::string& name) const {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) fail("model", "weights.h must list {}, got no such name", name);
    return found->second;
  }
  Linear linear(const std::string& name) const { return {at(name + ".weight"), at(name + ".bias")}; }
  Norm norm(const std::string& name) const { return {at(name + ".weight"), at(name + ".bias"), eps_}; }

 private:
  std::map<std::string, at::Tensor> by_name_;
  double eps_ = 0;
};

// Dropout sites of one forward pass; outside training nothing is dropped.
struct Dropout {
  DropoutKey* key = nullptr;
  bool training = false;
  at::Tensor operator()(const at::Tensor& x, double p) const {
    if (!training || p == 0) return x;
    return ops::dropout(x, p, static_cast<int64_t>(key->seed), key->next_stream());
  }
};

}  // namespace rf::nn
