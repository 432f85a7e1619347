// Rotary position embedding (arXiv 2104.09864 Eq. 14-16, 34; R-ROPE-01..11): queries and keys are rotated by their
// positions, so that a score depends only on the distance. rf/model/rope_spec.h describes frequencies, scalings and
// precision; scalings that depend on a length use the length of the token's sequence. With rotary_value, values are
// rotated too and not rotated back, so the output depends on absolute positions (R-ROPE-11). With trainable, the
// frequencies are a parameter that starts at the scaled frequencies; with trainable "log", the parameter is their
// logarithm (R-ROPE-12): theta = exp(lambda), so a step of lambda changes every frequency by the same ratio.
// Cross-attention does not rotate (R-ROPE-14): it uses no terms of this encoding. log_n multiplies the scores of a
// query by the factor of log-n. The training length is max_position_embeddings, or original_max_position_embeddings
// if the rope_type reads it.
#include <ATen/ops/tensor.h>

#include <cmath>

#include "rf/io/error.h"
#include "rf/nn/devices.h"
#include "rf/nn/parameter.h"
#include "rotary_rows.h"

namespace rf::nn::posenc {

namespace {

class Rope : public RotaryEncoding {
 public:
  Rope(io::StrictObject& options, const EncodingShape& shape) : RotaryEncoding(RotaryForm::kRope, options, shape) {
    const TrainedFrequencies trained = rows_.settings().trained;
    if (trained == TrainedFrequencies::kNone) return;
    std::vector<double> start = rows_.initial_frequencies();
    if (trained == TrainedFrequencies::kLog) {
      for (double& each : start) {
        if (!(each > 0)) fail("rope", "frequencies must be above 0 where trainable is \"log\", got {}", each);
        each = std::log(each);
      }
    }
    trained_ = register_parameter(parameter_name(trained), at::tensor(start, at::kDouble).to(at::kFloat));
  }

  Shared compute_shared(const Positions& positions, at::ScalarType dtype) override {
    check_positions(positions, dtype);
    Terms terms = trained_->defined() ? trained_terms(positions, dtype) : rotary_terms(rows_, positions, dtype);
    if (rows_.settings().rotates_values) terms.value = terms.key;
    return {.terms = terms};
  }

 private:
  // Rounded as in the engine.
  at::Tensor frequencies() const {
    if (rows_.settings().trained == TrainedFrequencies::kRaw) return trained_;
    return trained_->to(at::kDouble).exp().to(trained_->scalar_type());
  }

  Terms trained_terms(const Positions& positions, at::ScalarType dtype) const {
    const at::Tensor freqs = frequencies();
    return rotations_of(positions, rf::name(rows_.settings().layout), [&](const TokenPositions& tokens) {
      return trained_rotation_rows(rows_.settings().spec, freqs, on_device(tokens.ids, freqs.device()), dtype);
    });
  }

  Parameter trained_;  // [R/2], frequencies or their logarithms; undefined when they are fixed
};

}  // namespace

EncodingEntry rope() {
  return {.info = {.name = "rope",
                   .summary = "rotary: queries and keys are rotated by their positions, with nine published scalings",
                   .equation = "score = s R_m q . R_n k, R_m rotating pair i by m theta_i",
                   .source = "Su et al. 2021, arXiv 2104.09864 Eq. 14-16",
                   .terms = "R^q, R^k; R^v with rotary_value",
                   .parameters = "0; R/2 with trainable",
                   .cost = "(T + S) H D",
                   .extrapolates = "with a scaling in rope_parameters; without one, poorly beyond the training length",
                   .keys = rotary_keys("pairs", {"rotary_value = false", "trainable = false (or true, \"log\")",
                                                 "log_n = none (or position, length)",
                                                 "frequencies = those of rope_parameters (or R/2 numbers)"}),
                   .pairwise = EncodingInfo::Pairwise::kNo},
          .make = construct<Rope>};
}

}  // namespace rf::nn::posenc
