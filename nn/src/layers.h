// Building blocks of the encoder and the heads: handles to parameters, and functions on them. The kernels
// (rf/ops/rows.h) handle CPU tensors of float32, bfloat16 and float16. Torch operators handle all other tensors, and
// everything under RF_KERNEL=ref or inside transforms of torch.func; they also support derivatives of any order.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>

#include "rf/io/error.h"
#include "rf/model/config.h"
#include "rf/nn/attention.h"
#include "rf/nn/parameter.h"
#include "rf/ops/ops.h"
#include "rf/ops/rows.h"

namespace rf::nn {

at::Tensor activate(Activation activation, const at::Tensor& x);

struct Linear {
  Parameter weight, bias;  // undefined: not part of the model
  at::Tensor operator()(const at::Tensor& x) const;
  // activate(activation, (*this)(x)), fused if nothing is trained.
  at::Tensor operator()(const at::Tensor& x, Activation activation) const;
};

// Dropout sites of one forward pass; disabled outside training.
struct Dropout {
  DropoutKey* key = nullptr;
  bool training = false;
  at::Tensor operator()(const at::Tensor& x, double p) const {
    if (!training || p == 0) return x;
    return ops::dropout(x, p, static_cast<int64_t>(key->seed), key->next_stream());
  }
};

struct Norm {
  NormKind kind = NormKind::kLayer;
  double eps = 0;
  Parameter gain, bias;  // each undefined: none
  at::Tensor operator()(const at::Tensor& x) const;
  // The norm of residual + drop(x, p).
  at::Tensor operator()(const at::Tensor& x, const at::Tensor& residual, const Dropout& drop, double p) const;

 private:
  ops::NormOptions options() const;
};

// A model's parameters by full name: the parameters that weights.h lists.
class Parameters {
 public:
  Parameters() = default;
  Parameters(std::map<std::string, at::Tensor> by_name, const ModelConfig& config)
      : by_name_(std::move(by_name)), norms_(config.block.norm), eps_(config.layer_norm_eps) {}
  bool has(const std::string& name) const { return by_name_.contains(name); }
  Parameter at(const std::string& name) const {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) fail("model", "weights.h must list {}, got no such name", name);
    return Parameter(found->second);
  }
  Linear linear(const std::string& name) const {
    return {at(name + ".weight"), has(name + ".bias") ? at(name + ".bias") : Parameter()};
  }
  Norm norm(const std::string& name) const {
    const auto part = [&](const std::string& each) { return has(each) ? at(each) : Parameter(); };
    return {.kind = norms_, .eps = eps_, .gain = part(name + ".weight"), .bias = part(name + ".bias")};
  }

 private:
  std::map<std::string, at::Tensor> by_name_;
  NormKind norms_ = NormKind::kLayer;
  double eps_ = 0;
};

}  // namespace rf::nn
