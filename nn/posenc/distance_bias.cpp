// Numbers by distance that are added to scores outside the scale.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/exp2.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <bit>
#include <cmath>
#include <vector>

#include "layer_parameters.h"
#include "rf/io/error.h"

namespace rf::nn::posenc {

namespace {

// One table for all layers.
class DistanceBias : public DistanceEncoding {
 public:
  Shared compute_shared(const Positions& positions, at::ScalarType dtype) override {
    const auto [lo, hi] = distance_range(positions);
    return {.terms = {.bias = {rows(at::arange(lo, hi + 1, at::kDouble), dtype), lo, hi}}};
  }

 protected:
  // [H, R]; distance_R: float64, query minus key; dtype: of queries and keys.
  virtual at::Tensor rows(const at::Tensor& distance_R, at::ScalarType dtype) const = 0;
};

// A penalty that grows with distance (ALiBi, Press et al. 2022, arXiv 2108.12409): -slope_h |m - n|. Slopes are
// 2^(-8/n), 2^(-16/n), .. for n heads, a power of two; for other head counts, the slopes of the next lower power come
// first, then every second slope of the next higher power, as in the authors' code. The paper is causal; without causal
// attention the penalty is symmetric. No parameters.
at::Tensor slopes(int64_t heads) {
  const auto below = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  std::vector<int64_t> steps_H;  // -8 / (2 * below) per step
  for (int64_t h = 0; h < below; ++h) steps_H.push_back(2 * (h + 1));
  for (int64_t h = 0; h < heads - below; ++h) steps_H.push_back(2 * h + 1);
  return at::exp2(at::tensor(steps_H, at::kDouble) * (-4.0 / static_cast<double>(below)));
}

class Alibi : public DistanceBias {
 public:
  Alibi(io::StrictObject&, const EncodingShape& shape) : slopes_H1_(slopes(shape.heads).unsqueeze(1)) {}

 protected:
  at::Tensor rows(const at::Tensor& distance_R, at::ScalarType dtype) const override {
    return (-slopes_H1_ * distance_R.abs()).to(ops::row_dtype(dtype));
  }

 private:
  at::Tensor slopes_H1_;  // not a buffer: stays float64 when the model is cast
};

// Sandwich (Chi et al. 2023, arXiv 2212.10356; R-REL-12): the product of the sinusoids of two positions, which depends
// only on their distance, divided by ALiBi's ratios:
//
//   b(d) = (sum_i cos(d w_i) - bar_d / 2) H / (8 h)     w_i = 10000^(-2i / bar_d), i = 0 .. bar_d / 2 - 1; h = 1 .. H
//
// The constant bar_d / 2, which softmax cancels, makes b(0) = 0, so that 16-bit scores keep their precision. The paper
// is causal; b is symmetric. No parameters.
class Sandwich : public DistanceBias {
 public:
  Sandwich(io::StrictObject& options, const EncodingShape& shape) : bar_d_(options.integer("bar_d", 128, 2, 4096)) {
    if (bar_d_ % 2 != 0) {
      fail("position_encoding", "{} must be even, a sine and a cosine for each frequency, got {}",
           options.path_of("bar_d"), bar_d_);
    }
    const double factor = 8.0 / static_cast<double>(shape.heads);
    ratio_H1_ = (at::arange(1, shape.heads + 1, at::kDouble) * factor).unsqueeze(1);
  }

 protected:
  at::Tensor rows(const at::Tensor& distance_R, at::ScalarType dtype) const override {
    at::Tensor sum_R = at::full_like(distance_R, -static_cast<double>(bar_d_ / 2));
    for (int64_t i = 0; i < bar_d_; i += 2) {
      sum_R.add_((distance_R * std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(bar_d_))).cos_());
    }
    return (sum_R / ratio_H1_).to(ops::row_dtype(dtype));
  }

 private:
  int64_t bar_d_;
  at::Tensor ratio_H1_;  // not a buffer: stays float64 when the model is cast
};

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
constexpr double kLeastStart = 0.01, kMaxPower = 2;  // the authors' clamps

at::Tensor start(int64_t heads, double high) { return uniform({heads}, 0, high).clamp_min_(kLeastStart); }

class Kerple : public DistanceBias {
 protected:
  explicit Kerple(const at::Tensor& r1_H) : log_r1_(register_parameter("log_r1", r1_H.log())) {}

  at::Tensor rows(const at::Tensor& distance_R, at::ScalarType) const override {
    const at::ScalarType type = at::promote_types(log_r1_->scalar_type(), at::kFloat);
    return -log_r1_->to(type).exp().unsqueeze(1) * growth(distance_R.abs().to(type), type);
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

// BAM (Bianchessi et al. 2025, arXiv 2505.22842; R-REL-19): a penalty that is the logarithm of a generalised Gaussian
// prior over key positions, -(|r - mu| / alpha)^beta for the distance r of the key from the query. In the authors' code
// (github.com/ArthurSBianchessi/BAM), for each head and layer,
//
//   b(d) = -exp(theta_alpha) (|d + mu| + 1e-5)^theta_beta     mu = exp(theta_mu) - exp(-theta_mu)
//
// d is query minus key, so a positive mu prefers later keys. alpha = exp(-theta_alpha / theta_beta), beta = theta_beta:
// 1 is ALiBi with slopes exp(theta_alpha), 2 a Gaussian, 0 disables the encoding. theta_beta may become negative; near
// keys then get lower scores than far ones. All three start at 0, as in the authors' code; theta_mu stays 0 unless
// `trainable_mu`. The paper's model is causal; without causal attention b is symmetric when mu is 0. Scalable softmax,
// which the paper also uses, is `log-n` and not here.
//
// The exponent is clamped to 80: float32 cannot represent much less than -exp(80), and a single key would otherwise get
// weight 0.
constexpr double kLeastDistance = 1e-5, kMaxExponent = 80;

class Bam : public DistanceEncoding {
 public:
  Bam(io::StrictObject& options, const EncodingShape& shape)
      : theta_alpha_(zeros("theta_alpha", shape)), theta_beta_(zeros("theta_beta", shape)) {
    if (options.boolean("trainable_mu", false)) theta_mu_ = zeros("theta_mu", shape);
  }

  Shared compute_shared(const Positions& positions, at::ScalarType) override {
    const auto [lo, hi] = distance_range(positions);
    const at::ScalarType type = at::promote_types(theta_alpha_.front()->scalar_type(), at::kFloat);
    return {.table = {at::arange(lo, hi + 1, type).unsqueeze(0), lo, hi}};  // distances [1, R]
  }

  Terms compute_terms(int64_t layer, const Shared& shared, const Projections&) override {
    at::Tensor distance_HR = shared.table.rows;
    const auto column = [&](const std::vector<Parameter>& thetas) {
      return thetas.at(layer)->to(distance_HR.scalar_type()).unsqueeze(1);
    };
    if (!theta_mu_.empty()) {
      const at::Tensor theta_H1 = column(theta_mu_);
      distance_HR = distance_HR + theta_H1.exp() - (-theta_H1).exp();
    }
    const at::Tensor exponent_HR =
        column(theta_alpha_) + column(theta_beta_) * (distance_HR.abs() + kLeastDistance).log();
    return {.bias = {-exponent_HR.clamp_max(kMaxExponent).exp(), shared.table.lo, shared.table.hi}};
  }

 private:
  std::vector<Parameter> zeros(const char* name, const EncodingShape& shape) {
    return layer_parameters(*this, shape.layers, name, [&] { return at::zeros({shape.heads}); });
  }

  std::vector<Parameter> theta_alpha_, theta_beta_, theta_mu_;  // [H] for each layer
};

// What the biases have in common.
EncodingInfo info_of(const char* name, const char* summary, const char* equation, const char* source) {
  return {.name = name,
          .summary = summary,
          .equation = equation,
          .source = source,
          .terms = "b",
          .cost = "T * S * H additions",
          .extrapolates = "yes, by design"};
}

}  // namespace

EncodingEntry alibi() {
  return {.info = info_of("alibi", "a fixed penalty on scores, linear in the distance, a slope for each head",
                          "s q_m.k_n - slope_h |m - n|", "Press et al. 2022, arXiv 2108.12409 section 3"),
          .make = construct<Alibi>};
}

EncodingEntry kerple_log() {
  EncodingInfo info =
      info_of("kerple-log", "a trained penalty on scores, logarithmic in the distance",
              "s q_m.k_n - r1_h log(1 + r2_h |m - n|), r1, r2 > 0", "Chi et al. 2022, arXiv 2205.09921 section 4");
  info.parameters = "2 H";
  return {.info = info, .make = construct<KerpleLog>};
}

EncodingEntry kerple_power() {
  EncodingInfo info = kerple_log().info;
  info.name = "kerple-power";
  info.summary = "a trained penalty on scores, a power of the distance";
  info.equation = "s q_m.k_n - r1_h |m - n|^r2_h, r1 > 0, 0 < r2 < 2";
  return {.info = info, .make = construct<KerplePower>};
}

EncodingEntry bam() {
  EncodingInfo info = info_of("bam", "a trained penalty on scores for each layer, a power of the distance of any sign",
                              "s q_m.k_n - exp(theta_alpha) (|m - n + mu| + 1e-5)^theta_beta",
                              "Bianchessi et al. 2025, BAM, arXiv 2505.22842");
  info.parameters = "2 L * H; 3 L * H with trainable_mu";
  info.keys = {"trainable_mu = false"};
  return {.info = info, .make = construct<Bam>};
}

EncodingEntry sandwich() {
  EncodingInfo info =
      info_of("sandwich", "the product of two positions' sinusoids, added to the scores, a ratio for each head",
              "s q_m.k_n + (sum_i cos((m - n) w_i) - bar_d/2) H / (8 h), w_i = 10000^(-2i/bar_d)",
              "Chi et al. 2023, arXiv 2212.10356");
  info.keys = {"bar_d = 128"};
  return {.info = info, .make = construct<Sandwich>};
}

}  // namespace rf::nn::posenc
