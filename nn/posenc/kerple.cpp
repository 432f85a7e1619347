// KERPLE (Chi et al. 2022, arXiv 2205.09921 section 4; R-REL-11): a trained penalty that grows with distance, with two
// positive numbers for each head that all layers share:
//
//   kerple-log     b(d) = -r1 log(1 + r2 |d|)
//   kerple-power   b(d) = -r1 |d|^r2, r2 <= 2
//
// The paper is causal; without causal attention the penalty is symmetric. The authors' code trains r1 and r2 and clamps
// them; here the parameters are ln r1, and ln r2 or ln (r2 / (2 - r2)), so every value is valid. They start as in the
// authors' code: uniform up to 2 (the factor of the logarithm, the power) or 1, and at least 0.01. The form that also
// multiplies scores by exp(-r |d|^p) is not implemented.
#include <ATen/TensorOperators.h>

#include "distance_bias.h"
#include "layer_parameters.h"
#include "rf/nn/devices.h"

namespace rf::nn::posenc {

namespace {

constexpr double kLeastStart = 0.01, kMaxPower = 2;  // the authors' clamps

at::Tensor start(int64_t heads, double high) { return uniform({heads}, 0, high).clamp_min_(kLeastStart); }

class Kerple : public DistanceBias {
 protected:
  explicit Kerple(const at::Tensor& r1_H) : log_r1_(register_parameter("log_r1", r1_H.log())) {}

  at::Tensor rows(const at::Tensor& distance_R, at::ScalarType) const override {
    const at::ScalarType type = at::promote_types(log_r1_->scalar_type(), at::kFloat);
    return -log_r1_->to(type).exp().unsqueeze(1) *
           growth(on_device(distance_R, log_r1_->device()).abs().to(type), type);
  }
  // The factor of r1, [H, R].
  virtual at::Tensor growth(const at::Tensor& distance_R, at::ScalarType type) const = 0;

 private:
  Parameter log_r1_;  // [H]
};

class KerpleLog : public Kerple {
 public:
  KerpleLog(io::StrictObject&, const EncodingShape& shape)
      : Kerple(start(shape.heads, 2)), log_r2_(register_parameter("log_r2", start(shape.heads, 1).log())) {}

 protected:
  at::Tensor growth(const at::Tensor& distance_R, at::ScalarType type) const override {
    return (log_r2_->to(type).exp().unsqueeze(1) * distance_R).log1p();
  }

 private:
  Parameter log_r2_;  // [H]
};

class KerplePower : public Kerple {
 public:
  KerplePower(io::StrictObject&, const EncodingShape& shape) : Kerple(start(shape.heads, 1)) {
    const at::Tensor share_H = start(shape.heads, kMaxPower) / kMaxPower;
    logit_r2_ = register_parameter("logit_r2", share_H.logit(kLeastStart / kMaxPower));
  }

 protected:
  // |d|^r2 as exp(r2 ln |d|), without ln 0.
  at::Tensor growth(const at::Tensor& distance_R, at::ScalarType type) const override {
    const at::Tensor power_H1 = logit_r2_->to(type).sigmoid().unsqueeze(1) * kMaxPower;
    return (power_H1 * distance_R.clamp_min(1).log()).exp() * distance_R.ne(0);
  }

 private:
  Parameter logit_r2_;  // [H]
};

}  // namespace

EncodingEntry kerple_log() {
  return {.info = {.name = "kerple-log",
                   .summary = "a trained penalty on scores, logarithmic in the distance",
                   .equation = "s q_m.k_n - r1_h log(1 + r2_h |m - n|), r1, r2 > 0",
                   .source = "Chi et al. 2022, arXiv 2205.09921 section 4",
                   .terms = "b",
                   .parameters = "2 H",
                   .cost = "T * S * H additions",
                   .extrapolates = "yes, by design"},
          .make = construct<KerpleLog>};
}

EncodingEntry kerple_power() {
  EncodingInfo info = kerple_log().info;
  info.name = "kerple-power";
  info.summary = "a trained penalty on scores, a power of the distance";
  info.equation = "s q_m.k_n - r1_h |m - n|^r2_h, r1 > 0, 0 < r2 < 2";
  return {.info = info, .make = construct<KerplePower>};
}

}  // namespace rf::nn::posenc
