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
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include <vector>

#include "layer_parameters.h"

namespace rf::nn::posenc {

namespace {

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

}  // namespace

EncodingEntry bam() {
  return {.info = {.name = "bam",
                   .summary = "a trained penalty on scores for each layer, a power of the distance of any sign",
                   .equation = "s q_m.k_n - exp(theta_alpha) (|m - n + mu| + 1e-5)^theta_beta",
                   .source = "Bianchessi et al. 2025, BAM, arXiv 2505.22842",
                   .terms = "b",
                   .parameters = "2 L * H; 3 L * H with trainable_mu",
                   .cost = "T * S * H additions",
                   .extrapolates = "yes, by design",
                   .keys = {"trainable_mu = false"}},
          .make = construct<Bam>};
}

}  // namespace rf::nn::posenc
