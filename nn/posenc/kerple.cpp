// KERPLE (Chi et al. 2022, arXiv 2205.09921 section 4; R-REL-11): a trained penalty on scores that grows with distance,
// outside the scale, with two positive numbers for each head that all layers share:
//
//   kerple-log     b(d) = -r1 log(1 + r2 |d|)
//   kerple-power   b(d) = -r1 |d|^r2, r2 <= 2
//
// The paper is causal; without causal attention the penalty is symmetric. The authors' code trains r1 and r2 and clamps
// them; here the parameters are ln r1, and ln r2 or ln (r2 / (2 - r2)), so every value is valid. They start as in the
// authors' code: uniform up to 2 (the factor of the logarithm, the power) or 1, and at least 0.01. The form that also
// multiplies scores by exp(-r |d|^p) is not implemented.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include "layer_parameters.h"
#include "rf/nn/encoding.h"

namespace rf::nn::posenc {

namespace {

constexpr double kLeast = 0.01, kMaxPower = 2;  // the authors' clamps

at::Tensor uniform_start(int64_t heads, double high) {
  const at::Tensor values_H = at::empty({heads}, at::kFloat);
  return EmptyParameters::wanted() ? values_H : values_H.uniform_(0, high).clamp_min_(kLeast);
}

class Kerple : public Encoding {
 public:
  Shared compute_shared(const Positions& positions, at::ScalarType) override {
    const auto [lo, hi] = distance_range(positions);
    const at::ScalarType type = at::promote_types(log_r1_->scalar_type(), at::kFloat);
    const at::Tensor distance_R = at::arange(lo, hi + 1, type).abs();
    const at::Tensor rows_HR = -log_r1_->to(type).exp().unsqueeze(1) * growth(distance_R, type);
    return {.terms = {.bias = {rows_HR, lo, hi}}};
  }

  void check_length(int64_t tokens) const override { distance_range(ends_of_sequence(tokens)); }
  int64_t last_new_length() const override { return INT64_MAX; }

 protected:
  explicit Kerple(const at::Tensor& r1_H) : log_r1_(register_parameter("log_r1", r1_H.log())) {}

  // The factor of r1, [H, R].
  virtual at::Tensor growth(const at::Tensor& distance_R, at::ScalarType type) const = 0;

 private:
  Parameter log_r1_;  // [H]
};

class KerpleLog : public Kerple {
 public:
  KerpleLog(io::StrictObject&, const EncodingShape& shape)
      : Kerple(uniform_start(shape.heads, 2)),
        log_r2_(register_parameter("log_r2", uniform_start(shape.heads, 1).log())) {}

 protected:
  at::Tensor growth(const at::Tensor& distance_R, at::ScalarType type) const override {
    return (log_r2_->to(type).exp().unsqueeze(1) * distance_R).log1p();
  }

 private:
  Parameter log_r2_;  // [H]
};

class KerplePower : public Kerple {
 public:
  KerplePower(io::StrictObject&, const EncodingShape& shape) : Kerple(uniform_start(shape.heads, 1)) {
    const at::Tensor share_H = uniform_start(shape.heads, kMaxPower) / kMaxPower;
    logit_r2_ = register_parameter("logit_r2", share_H.logit(kLeast / kMaxPower));
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

EncodingInfo kerple_info(std::string name, std::string summary, std::string equation) {
  return {.name = std::move(name),
          .summary = std::move(summary),
          .equation = std::move(equation),
          .source = "Chi et al. 2022, arXiv 2205.09921 section 4",
          .terms = "b",
          .parameters = "2 H",
          .cost = "T * S * H additions",
          .extrapolates = "yes, by design",
          .file = "nn/posenc/kerple.cpp",
          .test = "tests/nn/test_kerple.py"};
}

}  // namespace

EncodingEntry kerple_log() {
  return {.info = kerple_info("kerple-log", "a trained penalty on scores, logarithmic in the distance",
                              "s q_m.k_n - r1_h log(1 + r2_h |m - n|), r1, r2 > 0"),
          .make = construct<KerpleLog>};
}

EncodingEntry kerple_power() {
  return {.info = kerple_info("kerple-power", "a trained penalty on scores, a power of the distance",
                              "s q_m.k_n - r1_h |m - n|^r2_h, r1 > 0, 0 < r2 < 2"),
          .make = construct<KerplePower>};
}

}  // namespace rf::nn::posenc
