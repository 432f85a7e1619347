// ReRoPE and Leaky ReRoPE (Su 2023, kexue.fm/archives/9708, github.com/bojone/rerope; R-REL-15): rotary embedding whose
// distances grow more slowly, or not at all, beyond a window w, so that no distance exceeds the distances of training:
//
//   score(m,n) = s q . R_{f(m - n)} k     f(r) = r if |r| < w, else sign(r) (w + (|r| - w) / scaling_factor)
//
// Without scaling_factor every far token has distance w (ReRoPE). Frequencies and scalings are as in rope. Attention
// takes the rotations by r. If there are far pairs, it also takes the difference of the two scores as one number per
// pair: T x S for each head in memory. If all pairs are near, this is rope. Su also multiplies queries by a logarithm
// of the position, which is available as log-n.
#include <ATen/TensorOperators.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "attention_state.h"
#include "layer_parameters.h"
#include "rf/io/error.h"
#include "rf/nn/devices.h"
#include "rotary_rows.h"

namespace rf::nn::posenc {

namespace {

class Rerope : public RotaryEncoding {
 public:
  Rerope(io::StrictObject& options, const EncodingShape& shape)
      : RotaryEncoding(RotaryForm::kRope, options, shape), head_dim_(shape.head_dim) {
    const RotarySettings& settings = rows_.settings();
    if (settings.rotates_values || settings.trained != TrainedFrequencies::kNone || settings.log_n != LogN::kNone) {
      fail("position_encoding", "rotary_value, trainable and log_n must be absent for rerope, got one of them");
    }
    if (rows_.changes_with_length()) {
      fail("position_encoding", "frequencies of rerope must not depend on the length, got a rope_type where they do");
    }
    window_ = options.integer("window", 512, 1, int64_t{1} << 31);
    const bool is_leaky = options.find("scaling_factor") != nullptr;
    const double factor = options.number("scaling_factor", 1, {1, 1e9});
    slowness_ = is_leaky ? 1 / factor : 0;
  }

  bool reads_vectors() const override { return true; }

  Terms compute_terms(int64_t, const Shared& shared, const Projections& projections) override {
    const NoAutocast no_autocast;
    const ReadVectors x = read_vectors("rerope", projections, head_dim_);
    Terms terms = shared.terms;
    terms.scale = x.scale;
    const at::Tensor query_BT = on_device(shared.positions.query.ids, x.q_BTHD.device()),
                     key_BS = on_device(shared.positions.key.ids, x.q_BTHD.device());
    const at::Tensor distance_BTS = query_BT.unsqueeze(-1) - key_BS.unsqueeze(-2);
    at::Tensor near_BHTS, far_BHTS;
    for (const double sign : {1.0, -1.0}) {
      const at::Tensor is_far_BTS = (distance_BTS * static_cast<int64_t>(sign)).ge(window_);
      if (!is_far_BTS.any().item<bool>()) continue;
      if (!near_BHTS.defined()) near_BHTS = scores(x, terms.query, terms.key, terms.layout);
      const double offset = sign * static_cast<double>(window_) * (1 - slowness_);
      const at::Tensor difference_BHTS =
          (scores(x, slow_rows(query_BT, offset, x), slow_rows(key_BS, 0, x), terms.layout) - near_BHTS) * x.scale;
      const at::Tensor otherwise = far_BHTS.defined() ? far_BHTS : at::zeros_like(difference_BHTS);
      far_BHTS = at::where(is_far_BTS.unsqueeze(1), difference_BHTS, otherwise);
    }
    terms.pair_bias = far_BHTS;
    return terms;
  }

 private:
  static at::Tensor scores(const ReadVectors& x, const Rotation& query, const Rotation& key,
                           const std::string& layout) {
    return at::einsum("bthd,bshd->bhts", {rotated(x.q_BTHD, query, layout), rotated(x.k_BSHD, key, layout)});
  }

  // Rotation rows at positions slowness p + offset, [1 or B, T, R/2].
  Rotation slow_rows(const at::Tensor& ids_BT, double offset, const ReadVectors& x) const {
    const at::Tensor theta_P = on_device(at::tensor(rows_.initial_frequencies(), at::kDouble), ids_BT.device());
    const at::Tensor angle_BTP = (ids_BT.to(at::kDouble) * slowness_ + offset).unsqueeze(-1) * theta_P;
    const double factor = rows_.settings().spec.attention_factor;
    const at::ScalarType dtype = x.q_BTHD.scalar_type();
    return {.cos = (angle_BTP.cos() * factor).to(dtype), .sin = (angle_BTP.sin() * factor).to(dtype)};
  }

  int64_t window_;
  double slowness_;  // 1 / scaling_factor; 0: the distance stays w
  int64_t head_dim_;
};

}  // namespace

EncodingEntry rerope() {
  return {.info = {.name = "rerope",
                   .summary = "rotary whose distances grow slowly or not at all beyond a window",
                   .equation = "score = s q . R_f(m - n) k, f(r) = r where |r| < w, else sign(r) (w + (|r| - w) / "
                               "scaling_factor)",
                   .source = "Su 2023, kexue.fm/archives/9708",
                   .terms = "R^q, R^k, P, s",
                   .cost = "2 * T * S * H * D multiply-adds, and T * S * H numbers in memory, where a pair is far; "
                           "bidirectional 3",
                   .extrapolates = "yes, by design",
                   .keys = rotary_keys("pairs",
                                       {"window = 512", "scaling_factor = none (ReRoPE), a number (Leaky ReRoPE)"})},
          .make = construct<Rerope>};
}

}  // namespace rf::nn::posenc
