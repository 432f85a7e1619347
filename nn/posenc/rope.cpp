// Rotary position embedding (arXiv 2104.09864 Eq. 14-16, 34; R-ROPE-01..11): queries and keys are rotated by their
// positions, so that a score depends on the distance alone. Frequencies, scalings and precision are those of
// rf/model/rope_spec.h; scalings that depend on the length take that of a token's own sequence. With rotary_value the
// values are rotated too and not rotated back, which makes the output depend on absolute positions (R-ROPE-11). With
// trainable the frequencies are a parameter that starts at the scaled ones (R-ROPE-12). Cross-attention does not rotate
// (R-ROPE-14): its caller takes no terms from here. log_n multiplies the scores of a query by the factor of log_n.cpp,
// with max_position_embeddings, or original_max_position_embeddings where the rope_type reads it, for the training
// length.
#include <ATen/ops/tensor.h>

#include <utility>

#include "rf/nn/encoding.h"
#include "rf/nn/parameter.h"
#include "rotary_rows.h"

namespace rf::nn::posenc {

namespace {

class Rope : public Encoding {
 public:
  explicit Rope(RotaryRows rows) : rows_(std::move(rows)) {
    if (!rows_.settings().trained) return;
    freqs_ = register_parameter("freqs", at::tensor(rows_.initial_frequencies(), at::kDouble).to(at::kFloat));
  }

  Shared compute_shared(const Positions& positions, at::ScalarType dtype) override {
    require_one_axis("rope", positions);
    Shared shared;
    Terms& terms = shared.terms;
    terms = freqs_->defined() ? trained_terms(positions, dtype) : rotary_terms(rows_, positions, dtype);
    if (rows_.settings().rotates_values) terms.value = terms.key;
    return shared;
  }

  bool changes_with_length() const override { return rows_.changes_with_length(); }

 private:
  Terms trained_terms(const Positions& positions, at::ScalarType dtype) const {
    const auto rows = [&](const TokenPositions& tokens) {
      return trained_rotation_rows(rows_.settings().spec, freqs_, tokens.ids, dtype);
    };
    Terms terms;
    terms.layout = rf::name(rows_.settings().layout);
    terms.query = rows(positions.query);
    terms.key = positions.same_tokens() ? terms.query : rows(positions.key);
    return terms;
  }

  RotaryRows rows_;
  Parameter freqs_;  // [R/2]; undefined when the frequencies are fixed
};

std::vector<std::string> rope_keys() {
  std::vector<std::string> keys = rotary_keys("pairs");
  keys.emplace_back("rotary_value = false");
  keys.emplace_back("trainable = false");
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
