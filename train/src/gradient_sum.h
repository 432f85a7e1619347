// The sum of gradients over the ranks of a job, in buckets that are sent during the backward pass or after it.
//
// A bucket holds consecutive parameters, from the last of the model to the first, which is about the order in which
// their gradients are ready. When all gradients of a bucket are ready, they are copied into one tensor, and its sum
// over ranks starts; every rank sends the buckets in the same order. Buckets depend only on the parameters, so jobs
// with the same number of ranks always sum in the same order.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "ranks.h"
#include "rf/train/run_config.h"

namespace rf::train {

struct CommunicationTime {
  double busy = 0;     // seconds in which at least one bucket was on its way
  double exposed = 0;  // the part in which the training thread waited
};

class GradientSum {
 public:
  // weights: the trained parameters, leaves, in the order of the model. precision: in which gradients are sent and
  // summed. Nothing is done for one rank. The bits do not depend on `overlap`.
  enum class Overlap { kBackward, kNone };
  GradientSum(const Ranks& ranks, std::vector<at::Tensor> weights, Precision precision,
              Overlap overlap = Overlap::kBackward);
  ~GradientSum();
  GradientSum(const GradientSum&) = delete;
  GradientSum& operator=(const GradientSum&) = delete;

  // Before the last backward pass of a step: with kBackward, its gradients are sent as they become ready.
  void send_in_next_backward();
  // Call it after the backward pass, or instead of one: sends the remaining buckets, waits, and stores the sum as the
  // gradient of every weight, 0 for weights without a gradient on any rank.
  void finish();

  // Since the last call.
  CommunicationTime take_time();

 private:
  struct Bucket;
  class ReadyHook;
  void mark_ready(size_t bucket);
  void send_ready();
  void send(Bucket& bucket);

  const Ranks& ranks_;
  Precision precision_;
  Overlap overlap_;
  std::vector<std::unique_ptr<Bucket>> buckets_;
  size_t sent_ = 0;       // buckets of this step
  bool sending_ = false;  // in the last backward pass
  CommunicationTime time_;
};

}  // namespace rf::train
