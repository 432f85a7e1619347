// AdamW (Loshchilov and Hutter, arXiv 1711.05101) with torch's semantics (spec R-TRN-03), clipping by the global norm.
//
//   g' = g * min(1, clip_norm / (|g| + 1e-6))
//   w <- w (1 - lr wd)                               wd = 0 for biases and norms, lr times a factor for a group
//   m <- b1 m + (1 - b1) g',  v <- b2 v + (1 - b2) g'^2
//   w <- w - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
//
// Weights, moments and arithmetic are float32. The frozen position table is left out. Moments are on the weights'
// device. On a GPU the update is queued before the norm of its gradient is known here; the device itself leaves out an
// update whose norm is not finite.
//
// In a job of several ranks the moments may be divided among them (the first stage of ZeRO, arXiv 1910.02054): all
// weights, in their order, form one list of numbers, and each rank has an equal part of it. A rank updates its part,
// and then all weights are gathered, so they have the same bits on every rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ranks.h"
#include "rf/train/run_config.h"

namespace rf::train {

enum class Decay { kApplied, kNone };

struct Parameter {
  std::string name;
  at::Tensor weight;  // float32, a leaf
  Decay decay;
};

// Numbers `begin` to `begin + length - 1` of a moment; `values` has `length` elements.
struct MomentPart {
  std::string name;  // "exp_avg.<weight>" or "exp_avg_sq.<weight>"
  int64_t begin = 0;
  at::Tensor values;
};

// The first group whose pattern a parameter's name matches.
std::optional<size_t> group_of(const std::vector<ParameterGroup>& groups, const std::string& name);

class AdamW {
 public:
  // divided_among: the ranks that share the moments. Throws Error for a group without parameters.
  AdamW(std::vector<Parameter> parameters, AdamWOptions options, const Ranks& divided_among = Ranks::alone());

  // One update from the weights' gradients; a weight without a gradient has gradient 0. Returns the norm of all
  // gradients before clipping. If that is not finite, it throws Error and changes nothing; `step` is for the message.
  double step(double learning_rate, int64_t step);
  // The same in two parts: start_step() returns the norms of the gradients, float32 [weights], on their device, and
  // norm_of(), given them on the CPU, the norm of all, or throws. On the CPU start_step() throws already.
  at::Tensor start_step(double learning_rate, int64_t step);
  double norm_of(const at::Tensor& norms, int64_t step) const;
  // Frees the gradients, so that the next backward pass stores its own tensors and nothing is filled with zeros or
  // added.
  void drop_gradients();

  // The moments of this rank.
  std::vector<MomentPart> moments() const;
  // The moments that this rank writes to a checkpoint: an equal part of all.
  std::vector<MomentPart> moments_to_write(const Ranks& ranks) const;
  int64_t moments_of_all() const;               // how many tensors all ranks have: two for each weight
  int64_t updates() const { return updates_; }  // made
  // For a resumed run, after moments() has been filled.
  void set_updates(int64_t updates) { updates_ = updates; }

 private:
  // A part of the numbers of a weight.
  struct Range {
    int64_t begin = 0, length = 0;
    at::Tensor of(const at::Tensor& whole) const;
  };
  struct Group {  // parameters with the same decay and factor of the rate, as lists for torch's kernel
    double weight_decay = 0, rate = 1;
    std::vector<std::string> names;
    std::vector<at::Tensor> weights, exp_avg, exp_avg_sq;
    std::vector<int64_t> offsets;  // of each weight in the list of all
    std::vector<Range> ranges;     // the part of each weight that this rank updates
  };
  using Gradients = std::vector<std::vector<at::Tensor>>;  // by group
  // For torch's kernel: what divides the gradients, and 1 if it shall do nothing, else 0; float32 scalars.
  struct Clipping {
    std::optional<at::Tensor> divisor, is_left_out;
  };
  Clipping clipping(const at::Tensor& norms, int64_t step) const;
  Gradients gradients() const;
  static at::Tensor norms_of(const Gradients& gradients);
  // The part of a weight at `offset` of the list of all that belongs to a rank.
  Range range_of(int64_t offset, int64_t elements, const Ranks& ranks) const;
  void gather_weights();

  AdamWOptions options_;
  const Ranks& ranks_;
  int64_t elements_ = 0;  // of all weights
  std::vector<Group> groups_;
  int64_t updates_ = 0;
};

}  // namespace rf::train
