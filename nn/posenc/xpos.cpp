// xPos (Sun et al. 2022, arXiv 2212.10554): rotary embedding whose queries grow and whose keys shrink with
// their positions, so that the share of pair i in a score also decays with the distance m - n, the faster the faster
// the pair turns:
//
//   q_m -> zeta_i^(+e_m / scale_base) R_m q_m     zeta_i = (2i/R + 0.4) / 1.4
//   k_n -> zeta_i^(-e_n / scale_base) R_n k_n     e_p = p - first position of the token's sequence
//
// Scores depend on e_m - e_n = m - n alone; counting from the start keeps packed sequences and late positions small.
// Even so the magnitudes of a long sequence leave the normal range of float32 (of float16 for float16 data), which is
// an Error. The paper's models are
// causal: a key after its query grows instead of decaying.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/pow.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "rf/io/error.h"
#include "rf/nn/encoding.h"
#include "rotary_rows.h"

namespace rf::nn::posenc {

namespace {

constexpr double kGamma = 0.4;

enum class Side { kQuery, kKey };

class Xpos : public Encoding {
 public:
  Xpos(const RopeSpec& spec, std::string layout, double scale_base)
      : frequencies_(spec), layout_(std::move(layout)), scale_base_(scale_base) {
    const int64_t dim = spec.rotary_dim;
    zeta_ = (at::arange(0, dim, 2, at::kDouble) / dim + kGamma) / (1 + kGamma);
  }

  Shared compute_shared(const Positions& positions, at::ScalarType dtype) override {
    require_one_axis("xpos", positions);
    Shared shared;
    shared.terms.layout = layout_;
    for (const TokenPositions* tokens : {&positions.query, &positions.key}) check_length(*tokens, dtype);
    shared.terms.query = rows(positions.query, Side::kQuery, dtype);
    shared.terms.key = rows(positions.key, Side::kKey, dtype);
    return shared;
  }

  // A later token may have a lower position, from which exponents then count.
  bool changes_with_length() const override { return true; }

 private:
  // The smallest zeta, that of pair 0, is the first to leave the range: downwards in queries, upwards in keys.
  void check_length(const TokenPositions& tokens, at::ScalarType dtype) const {
    if (tokens.ids.numel() == 0) return;
    const bool is_half = dtype == at::kHalf;
    const double lowest = is_half ? float{std::numeric_limits<at::Half>::min()} : std::numeric_limits<float>::min();
    const double highest = is_half ? float{std::numeric_limits<at::Half>::max()} : std::numeric_limits<float>::max();
    const double scale = frequencies_.spec().attention_factor;
    const double room = std::min(std::log(scale / lowest), std::log(highest / scale)) / std::log((1 + kGamma) / kGamma);
    const int64_t longest = 1 + static_cast<int64_t>(std::clamp(room * scale_base_, 0.0, 0x1p53));
    const int64_t length = (tokens.ids - tokens.first).max().item<int64_t>() + 1;
    if (length > longest) {
      fail("xpos", "a sequence must have at most {} tokens for its magnitudes to be normal {} numbers, got {}", longest,
           is_half ? "float16" : "float32", length);
    }
  }

  Rotation rows(const TokenPositions& tokens, Side side, at::ScalarType dtype) const {
    const at::Tensor steps_BT = tokens.ids - tokens.first;
    const double sign = side == Side::kQuery ? 1.0 : -1.0;
    const at::Tensor magnitude = at::pow(zeta_, steps_BT.unsqueeze(-1) * (sign / scale_base_));
    const Rotation turn = rotation_rows(tokens.ids, frequencies_.of(tokens.end), at::kDouble);
    const at::ScalarType type = ops::row_dtype(dtype);
    return {(turn.cos * magnitude).to(type), (turn.sin * magnitude).to(type)};
  }

  RotaryFrequencies frequencies_;
  std::string layout_;
  double scale_base_;
  at::Tensor zeta_;  // float64 [R/2]
};

std::shared_ptr<Encoding> make(io::StrictObject& options, const EncodingShape& shape) {
  const RopeSpec spec =
      read_rope_spec(options, {.head_dim = shape.head_dim, .max_position_embeddings = shape.max_position_embeddings});
  const double scale_base =
      options.number("scale_base", 512, {1, std::numeric_limits<double>::infinity(), io::NumberRange::Ends::kClosed});
  return std::make_shared<Xpos>(spec, read_layout(options, "pairs"), scale_base);
}

std::vector<std::string> keys() {
  std::vector<std::string> keys = rotary_keys("pairs");
  keys.push_back("scale_base = 512");
  return keys;
}

}  // namespace

EncodingEntry xpos() {
  return {.info = {.name = "xpos",
                   .summary = "rotary whose pairs also decay with the distance",
                   .equation = "score = s (zeta^(m/512) R_m q) . (zeta^(-n/512) R_n k), zeta_i = (2i/R + 0.4) / 1.4",
                   .source = "Sun et al. 2022, arXiv 2212.10554",
                   .terms = "R^q, R^k",
                   .parameters = "0",
                   .cost = "(T + S) H D",
                   .extrapolates = "yes when causal, to 35,000 tokens (float32's range)",
                   .file = "nn/posenc/xpos.cpp",
                   .test = "tests/nn/test_xpos.py",
                   .keys = keys()},
          .make = make};
}

}  // namespace rf::nn::posenc
