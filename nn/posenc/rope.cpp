// Rotary position embedding (arXiv 2104.09864 Eq. 14-16, 34; R-ROPE-01..11): queries and keys are rotated by their
// positions, so that a score depends only on the distance. rf/model/rope_spec.h describes frequencies, scalings and
// precision; scalings that depend on a length use the length of the token's sequence. With rotary_value, values are
// rotated too and not rotated back, so the output depends on absolute positions (R-ROPE-11). With trainable, the
// frequencies are a parameter that starts at the scaled frequencies; with trainable "log", the parameter is their
// logarithm (R-ROPE-12): theta = exp(lambda), so a step of lambda changes every frequency by the same ratio.
// Cross-attention does not rotate (R-ROPE-14): it uses no terms of this encoding. log_n multiplies the scores of a
// query by the factor of log_n.cpp. The training length is max_position_embeddings, or original_max_position_embeddings
// if the rope_type reads it.
#include <ATen/ops/exp.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <utility>

#include "rf/io/error.h"
#include "rf/nn/encoding.h"
#include "rf/nn/parameter.h"
#include "rotary_rows.h"

namespace rf::nn::posenc {

namespace {

class Rope : public Encoding {
 public:
  explicit Rope(RotaryRows rows) : rows_(std::move(rows)) {
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
    require_one_axis("rope", positions);
    Shared shared;
    Terms& terms = shared.terms;
    terms = trained_->defined() ? trained_terms(positions, dtype) : rotary_terms(rows_, positions, dtype);
    if (rows_.settings().rotates_values) terms.value = terms.key;
    return shared;
  }

  bool changes_with_length() const override { return rows_.changes_with_length(); }
  int64_t last_new_length() const override { return 1; }

 private:
  // Rounded as in the engine.
  at::Tensor frequencies() const {
    if (rows_.settings().trained == TrainedFrequencies::kRaw) return trained_;
    return trained_->to(at::kDouble).exp().to(trained_->scalar_type());
  }

  Terms trained_terms(const Positions& positions, at::ScalarType dtype) const {
    const at::Tensor freqs = frequencies();
    const auto rows = [&](const TokenPositions& tokens) {
      return trained_rotation_rows(rows_.settings().spec, freqs, tokens.ids, dtype);
    };
    Terms terms;
    terms.layout = rf::name(rows_.settings().layout);
    terms.query = rows(positions.query);
    terms.key = positions.same_tokens() ? terms.query : rows(positions.key);
    return terms;
  }

  RotaryRows rows_;
  Parameter trained_;  // [R/2], frequencies or their logarithms; undefined when they are fixed
};

std::vector<std::string> rope_keys() {
  std::vector<std::string> keys = rotary_keys("pairs");
  keys.emplace_back("rotary_value = false");
  keys.emplace_back("trainable = false (or true, \"log\")");
  keys.emplace_back("log_n = none (or position, length)");
  return keys;
}

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
                   .file = "nn/posenc/rope.cpp",
                   .test = "tests/nn/test_rope.py",
                   .keys = rope_keys()},
          .make = [](io::StrictObject& options, const EncodingShape& shape) -> std::shared_ptr<Encoding> {
            return std::make_shared<Rope>(make_rotary_rows(RotaryForm::kRope, options, shape));
          }};
}

}  // namespace rf::nn::posenc
