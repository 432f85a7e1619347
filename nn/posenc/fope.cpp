// Fourier position embedding (Hua et al. 2024, arXiv 2412.17739; R-ROPE-12): a rotary embedding whose pairs combine
// several frequencies,
//
//   cos_hd(m) = sum_k A_hkd cos(m theta_k)     sin_hd(m) = sum_k B_hkd sin(m theta_k)
//
// over the K frequencies of rotary embedding that complete at least one turn within max_position_embeddings, or over
// the first num_inv_freq. Pairs beyond the first output_dim are not rotated: cos 1 and sin 0, the paper's zero
// frequency. (The authors' code fills both with 1, which mixes the halves of such a pair.) Layout "halves", as in that
// code.
//
// A and B start at 1 for k = d, or for k = d ceil(K / output_dim) if there are fewer outputs. Normal noise is added:
// Glorot's, as torch computes it for a tensor [H, K, d], times fope_init_factor. Both stay fixed, as in the authors'
// runs, or are trained.
#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "known_values.h"
#include "layer_parameters.h"
#include "rf/io/error.h"
#include "rf/nn/devices.h"
#include "rotary_rows.h"

namespace rf::nn::posenc {

namespace {

class Fope : public LengthFreeEncoding {
 public:
  Fope(io::StrictObject& options, const EncodingShape& shape) : pairs_(shape.head_dim / 2) {
    if (shape.head_dim % 2 != 0) {
      fail("position_encoding", "head_dim must be even for fope, got {}", shape.head_dim);
    }
    const double base = options.number("rope_theta", 10000, {0, 1e100, io::NumberRange::Ends::kOpenLow});
    for (int64_t k = 0; k < pairs_; ++k) {
      frequencies_.push_back(std::pow(base, -static_cast<double>(k) / static_cast<double>(pairs_)));
    }
    // Those that complete at least one turn.
    const double least = 2 * std::numbers::pi / static_cast<double>(shape.max_position_embeddings);
    const auto kept = std::count_if(frequencies_.begin(), frequencies_.end(), [&](double t) { return t >= least; });
    if (options.find("num_inv_freq") == nullptr && kept == 0) {
      fail("position_encoding",
           "{} must be given where no frequency turns within max_position_embeddings, here {}, got none",
           options.path_of("num_inv_freq"), shape.max_position_embeddings);
    }
    const int64_t used = options.integer("num_inv_freq", kept, 1, pairs_);
    outputs_ = options.integer("output_dim", used, 1, pairs_);
    if (outputs_ > used) {
      fail("position_encoding", "{} must be at most the {} frequencies, got {}", options.path_of("output_dim"), used,
           outputs_);
    }
    frequencies_.resize(static_cast<size_t>(used));
    const double init_factor = options.number("fope_init_factor", 0.3, {0, 1e6});
    const int64_t heads = options.boolean("fope_sep_head", true) ? shape.heads : 1;
    const bool trainable = options.boolean("trainable", false);
    const auto make = [&](const char* name) {
      std::vector<Parameter> made =
          layer_parameters(*this, shape.layers, name, [&] { return coefficients_start(heads, init_factor); });
      for (const Parameter& each : made) {
        const at::Tensor& registered = each;
        registered.requires_grad_(trainable);
      }
      return made;
    };
    cos_coef_ = make("cos_coef");
    sin_coef_ = make("sin_coef");
  }

  Shared compute_shared(const Positions& positions, at::ScalarType) override {
    require_one_axis("fope", positions);
    return {};
  }

  Terms compute_terms(int64_t layer, const Shared& shared, const Projections&) override {
    return rotations_of(shared.positions, "halves",
                        [&](const TokenPositions& tokens) { return rows(layer, tokens.ids, shared.dtype); });
  }

 private:
  // Initial A or B of a layer, [H, K, d]; H is 1 where heads share them.
  at::Tensor coefficients_start(int64_t heads, double init_factor) const {
    const int64_t frequencies = std::ssize(frequencies_);
    const at::Tensor start_HKd = at::empty({heads, frequencies, outputs_}, at::kFloat);
    if (EmptyParameters::wanted()) return start_HKd;
    const auto fans = static_cast<double>((frequencies + heads) * outputs_);
    start_HKd.normal_(0, init_factor * std::sqrt(2 / fans));
    const int64_t step = (frequencies + outputs_ - 1) / outputs_;
    for (int64_t d = 0; d < outputs_ && d * step < frequencies; ++d) {
      start_HKd.select(1, d * step).select(1, d) += 1;
    }
    return start_HKd;
  }

  at::Tensor angles(const at::Tensor& ids_BT) const {
    const OutsideTransforms constant;
    const at::Tensor theta_K = on_device(at::tensor(frequencies_, at::kDouble), ids_BT.device());
    return ids_BT.to(at::kDouble).unsqueeze(-1) * theta_K;
  }

  // [1 or B, T, H, R/2].
  Rotation rows(int64_t layer, const at::Tensor& ids_BT, at::ScalarType dtype) const {
    const at::Device device = cos_coef_.at(layer)->device();
    const at::Tensor angle_BTK = angles(on_device(ids_BT, device));
    const auto sums = [&](const at::Tensor& waves_BTK, const at::Tensor& coef_HKd, double still) {
      const at::Tensor turned = at::einsum("btk,hkd->bthd", {waves_BTK, coef_HKd.to(at::kDouble)});
      return at::constant_pad_nd(turned, {0, pairs_ - outputs_}, still).to(ops::row_dtype(dtype));
    };
    return {.cos = sums(angle_BTK.cos(), cos_coef_.at(layer), 1), .sin = sums(angle_BTK.sin(), sin_coef_.at(layer), 0)};
  }

  int64_t pairs_, outputs_;                     // R/2; d, rotated pairs
  std::vector<double> frequencies_;             // [K], theta_k = base^(-k / pairs)
  std::vector<Parameter> cos_coef_, sin_coef_;  // A and B, [H, K, d] each
};

}  // namespace

EncodingEntry fope() {
  return {.info = {.name = "fope",
                   .summary = "rotary whose pairs turn by sums of several frequencies, with weights for each head",
                   .equation = "score = s R_m q . R_n k, R_m with cos_d = sum_k A_kd cos(m theta_k) and "
                               "sin_d = sum_k B_kd sin(m theta_k) in the place of cos and sin",
                   .source = "Hua et al. 2024, arXiv 2412.17739",
                   .terms = "R^q, R^k",
                   .parameters = "L * 2 * H * K * d, K and d at most D/2; without the factor H where heads share",
                   .cost = "(T + S) H (D + 2 K d)",
                   .extrapolates = "yes, by design: pairs that do not complete a turn in training are not rotated",
                   .keys = {"rope_theta = 10000", "num_inv_freq = those that turn once in max_position_embeddings",
                            "output_dim = num_inv_freq", "fope_init_factor = 0.3", "fope_sep_head = true",
                            "trainable = false"},
                   .invariance = EncodingInfo::Invariance::kNone,
                   .pairwise = EncodingInfo::Pairwise::kNo},
          .make = construct<Fope>};
}

}  // namespace rf::nn::posenc
