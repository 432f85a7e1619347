// AdamW (Loshchilov and Hutter, arXiv 1711.05101) with torch's semantics (spec R-TRN-03), clipping by the global norm.
//
//   g' = g * min(1, clip_norm / (|g| + 1e-6))
//   w <- w (1 - lr wd)                               wd = 0 for biases and norms
//   m <- b1 m + (1 - b1) g',  v <- b2 v + (1 - b2) g'^2
//   w <- w - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
//
// Weights, moments and arithmetic are float32. The frozen position table is left out.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace rf::train {

struct AdamWOptions {
  double weight_decay = 0.01;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double clip_norm = 1.0;  // 0: none
};

enum class Decay { kApplied, kNone };

struct Parameter {
  std::string name;
  at::Tensor weight;  // float32, a leaf
  Decay decay;
};

class AdamW {
 public:
  AdamW(std::vector<Parameter> parameters, AdamWOptions options);

  // One update from the weights' gradients; a weight without a gradient has gradient 0. Returns the norm of all
  // gradients before clipping. Throws Error, and changes nothing, if that is not finite; `step` is for its message.
  double step(double learning_rate, int64_t step);
  // Frees the gradients, so that the next backward pass stores its own tensors and nothing is filled with zeros or
  // added.
  void drop_gradients();

  // Moments as named tensors "exp_avg.<name>" and "exp_avg_sq.<name>", and the number of updates made.
  std::vector<std::pair<std::string, at::Tensor>> moments() const;
  int64_t updates() const { return updates_; }
  // For a resumed run, after moments() has been filled.
  void set_updates(int64_t updates) { updates_ = updates; }

 private:
  struct Group {  // parameters with the same decay, as lists for torch's kernel
    double weight_decay;
    std::vector<std::string> names;
    std::vector<at::Tensor> weights, exp_avg, exp_avg_sq;
  };
  using Gradients = std::vector<std::vector<at::Tensor>>;  // by group
  Gradients gradients() const;
  double norm_of(const Gradients& gradients, int64_t step) const;

  AdamWOptions options_;
  std::vector<Group> groups_;
  int64_t updates_ = 0;
};

}  // namespace rf::train
