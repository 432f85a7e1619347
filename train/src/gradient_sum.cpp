// Buckets of gradients (gradient_sum.h).
#include "gradient_sum.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <atomic>

#include "seconds.h"

namespace rf::train {

namespace {

// About this many buckets, so that most sums can begin before the backward pass ends. A bucket is large enough to hide
// latency and at most 24 MiB of float32, about torch's limit.
constexpr int64_t kBuckets = 8;
constexpr int64_t kMinElements = int64_t{1} << 16, kMaxElements = int64_t{6} << 20;

int64_t bucket_elements(const std::vector<at::Tensor>& weights) {
  int64_t all = 0;
  for (const at::Tensor& weight : weights) all += weight.numel();
  return std::clamp(all / kBuckets, kMinElements, kMaxElements);
}

}  // namespace

struct GradientSum::Bucket {
  std::vector<at::Tensor> weights;
  int64_t elements = 0;
  size_t ready = 0;  // weights whose gradient is ready in this step
  at::Tensor flat;   // their gradients, while they are summed
  c10::intrusive_ptr<c10d::Work> work;
  double begin = 0;
  std::shared_ptr<std::atomic<double>> end;  // 0 until the sum is complete
};

class GradientSum::ReadyHook : public torch::autograd::PostAccumulateGradHook {
 public:
  ReadyHook(GradientSum& sum, size_t bucket) : sum_(sum), bucket_(bucket) {}
  void operator()(const torch::autograd::Variable& /*weight*/) override { sum_.mark_ready(bucket_); }

 private:
  GradientSum& sum_;
  size_t bucket_;
};

GradientSum::GradientSum(const Ranks& ranks, std::vector<at::Tensor> weights, Precision precision, Overlap overlap)
    : ranks_(ranks), precision_(precision), overlap_(overlap) {
  if (ranks.size() == 1) return;
  const int64_t most = bucket_elements(weights);
  std::reverse(weights.begin(), weights.end());
  for (at::Tensor& weight : weights) {
    if (buckets_.empty() || buckets_.back()->elements + weight.numel() > most) {
      buckets_.push_back(std::make_unique<Bucket>());
    }
    Bucket& bucket = *buckets_.back();
    bucket.elements += weight.numel();
    torch::autograd::impl::set_post_acc_grad_hooks(weight, std::make_unique<ReadyHook>(*this, buckets_.size() - 1));
    bucket.weights.push_back(std::move(weight));
  }
}

GradientSum::~GradientSum() {
  for (const auto& bucket : buckets_) {
    for (const at::Tensor& weight : bucket->weights) torch::autograd::impl::set_post_acc_grad_hooks(weight, nullptr);
  }
}

void GradientSum::send_in_next_backward() { sending_ = overlap_ == Overlap::kBackward && !buckets_.empty(); }

void GradientSum::mark_ready(size_t bucket) {
  if (!sending_) return;
  ++buckets_[bucket]->ready;
  send_ready();
}

void GradientSum::send_ready() {
  while (sent_ < buckets_.size() && buckets_[sent_]->ready == buckets_[sent_]->weights.size()) send(*buckets_[sent_++]);
}

void GradientSum::send(Bucket& bucket) {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> parts;
  for (const at::Tensor& weight : bucket.weights) {
    const at::Tensor gradient = weight.grad().defined() ? weight.grad() : at::zeros_like(weight);
    parts.push_back(gradient.reshape({-1}));
    weight.mutable_grad().reset();
  }
  bucket.flat = at::cat(parts);
  if (precision_ == Precision::kBfloat16) bucket.flat = bucket.flat.to(at::kBFloat16);
  bucket.begin = now_seconds();
  bucket.end = std::make_shared<std::atomic<double>>(0);
  bucket.work = ranks_.start_sum(bucket.flat);
  bucket.work->getFuture()->addCallback([end = bucket.end](c10::ivalue::Future&) { *end = now_seconds(); });
}

void GradientSum::finish() {
  if (buckets_.empty()) return;
  sending_ = false;
  while (sent_ < buckets_.size()) send(*buckets_[sent_++]);
  const c10::NoGradGuard no_grad;
  double busy_until = 0;
  for (const auto& bucket : buckets_) {
    const double start = now_seconds();
    ranks_.wait(*bucket->work);
    const double now = now_seconds(), end = *bucket->end > 0 ? double(*bucket->end) : now;
    time_.exposed += now - start;
    time_.busy += std::max(0.0, end - std::max(bucket->begin, busy_until));
    busy_until = std::max(busy_until, end);
    at::Tensor sum = bucket->flat.to(at::kFloat);
    int64_t at = 0;
    for (const at::Tensor& weight : bucket->weights) {
      weight.mutable_grad() = sum.narrow(0, at, weight.numel()).view(weight.sizes());
      at += weight.numel();
    }
    bucket->flat.reset();
    bucket->work.reset();
    bucket->ready = 0;
  }
  sent_ = 0;
}

CommunicationTime GradientSum::take_time() { return std::exchange(time_, {}); }

}  // namespace rf::train
