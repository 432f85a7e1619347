// Rotary position embedding (arXiv 2104.09864 Eq. 14-16, 34; R-ROPE-01..11): queries and keys are rotated by their
// positions, so that a score depends on the distance alone. Frequencies, scalings and precision are those of
// rf/model/rope_spec.h; scalings that depend on the length take that of a token's own sequence. With rotary_value the
// values are rotated too and not rotated back, which makes the output depend on absolute positions (R-ROPE-11). With
// trainable the frequencies are a parameter that starts at the scaled ones (R-ROPE-12). Cross-attention does not rotate
// (R-ROPE-14): its caller takes no terms from here.
#include "rf/io/error.h"
#include "rf/nn/encoding.h"
#include "rotary_rows.h"

namespace rf::nn::posenc {

namespace {

enum class Values { kUnrotated, kRotated };
enum class Training { kFixed, kTrained };

class Rope : public Encoding {
 public:
  Rope(const RopeSpec& spec, std::string layout, Values values, Training training)
      : frequencies_(spec), layout_(std::move(layout)), values_(values) {
    if (training == Training::kTrained) {
      freqs_ = register_parameter("freqs", frequencies_.initial().hi.to(at::kFloat));
    }
  }

  Shared compute_shared(const Positions& positions, at::ScalarType dtype) override {
    require_one_axis("rope", positions);
    Shared shared;
    Terms& terms = shared.terms;
    terms.layout = layout_;
    terms.query = rows(positions.query, dtype);
    terms.key = positions.same_tokens() ? terms.query : rows(positions.key, dtype);
    if (values_ == Values::kRotated) terms.value = terms.key;
    return shared;
  }

  bool changes_with_length() const override { return frequencies_.spec().changes_with_length(); }

 private:
  Rotation rows(const TokenPositions& tokens, at::ScalarType dtype) const {
    TokenFrequencies theta = frequencies_.of(tokens.end);
    if (freqs_.defined()) {
      theta.hi = theta.precision == RopePrecision::kExact ? freqs_.to(at::kDouble) : freqs_.to(at::kFloat);
      theta.lo = at::Tensor();
    }
    return rotation_rows(tokens.ids, theta, dtype);
  }

  RotaryFrequencies frequencies_;
  std::string layout_;
  Values values_;
  at::Tensor freqs_;  // [R/2]; undefined when the frequencies are fixed
};

std::shared_ptr<Encoding> make_rope(io::StrictObject& options, const EncodingShape& shape) {
  const RopeSpec spec =
      read_rope_spec(options, {.head_dim = shape.head_dim, .max_position_embeddings = shape.max_position_embeddings});
  const std::string layout = read_layout(options, "pairs");
  const Values values = options.boolean("rotary_value", false) ? Values::kRotated : Values::kUnrotated;
  const Training training = options.boolean("trainable", false) ? Training::kTrained : Training::kFixed;
  if (training == Training::kTrained && spec.changes_with_length()) {
    fail("position_encoding",
         "trainable must be false where frequencies depend on the length, got true with rope_type {}", name(spec.type));
  }
  return std::make_shared<Rope>(spec, layout, values, training);
}

std::vector<std::string> rope_keys() {
  std::vector<std::string> keys = rotary_keys("pairs");
  keys.push_back("rotary_value = false");
  keys.push_back("trainable = false");
  return keys;
}

}  // namespace

EncodingEntry rope() {
  return {.info = {.name = "rope",
                   .summary = "rotary: queries and keys are rotated by their positions, with seven published scalings",
                   .equation = "score = s R_m q . R_n k, R_m rotating pair i by m theta_i",
                   .source = "Su et al. 2021, arXiv 2104.09864 Eq. 14-16",
                   .terms = "R^q, R^k; R^v with rotary_value",
                   .parameters = "0; R/2 with trainable",
                   .cost = "(T + S) H D",
                   .extrapolates = "with a scaling in rope_parameters; without one, poorly beyond the training length",
                   .file = "nn/posenc/rope.cpp",
                   .test = "tests/nn/test_rope.py",
                   .keys = rope_keys()},
          .make = make_rope};
}

}  // namespace rf::nn::posenc
