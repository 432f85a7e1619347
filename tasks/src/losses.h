// Shared by the losses and scores of tasks: pooling over the windows of an input, and cross-entropy, in double
// precision.
#pragma once

#include <span>
#include <vector>

#include "rf/tasks/task.h"

namespace rf::tasks {

// The logits of each input of an example, pooled over its rows.
std::vector<Scores> pooled(const Example& example, const Logits& logits, Pooling pooling);
// The derivatives with respect to an example's logits, from the derivatives with respect to the pooled ones. Equal
// maxima share theirs equally.
std::vector<double> unpooled(const Example& example, const Logits& logits, Pooling pooling,
                             const std::vector<Scores>& gradients);

struct CrossEntropy {
  double value = 0;
  std::vector<double> gradient;  // with respect to the logits
};
// The loss of one choice among K logits (spec R-TRN-02), with p = softmax(logits):
//   (1 - e) (-log p_target) + e mean_k(-log p_k),   e: label_smoothing
//   d/dlogit_k = p_k - (1 - e) [k = target] - e / K
CrossEntropy cross_entropy(std::span<const double> logits, size_t target, double label_smoothing);

}  // namespace rf::tasks
