// xPos (Sun et al. 2022, arXiv 2212.10554): rotary embedding whose queries grow and whose keys shrink with
// their positions, so that the share of pair i in a score also decays with the distance m - n, the faster the higher
// the pair's frequency:
//
//   q_m -> zeta_i^(+e_m / scale_base) R_m q_m     zeta_i = (2i/R + 0.4) / 1.4
//   k_n -> zeta_i^(-e_n / scale_base) R_n k_n     e_p = p - the middle of the token's sequence
//
// Scores depend on e_m - e_n = m - n alone; counting from the middle keeps both sides as near to 1 as they can be, in
// packed sequences and at late positions too. The product of a query and a key is what leaves the range first: where
// the first query meets the last key, zeta_0 comes to the power of minus the length. That power times what a product of
// q and k may be without it must be a number of the dtype; a longer sequence is an Error. The paper's models are
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

// What a product q . k may come to before xPos (dy . v in the backward), so that it is still a number after it. Half of
// float16's exponents are left for it, and more than enough in the others.
constexpr double kProductRoom = 0x1p20, kHalfProductRoom = 0x1p8;

enum class Side { kQuery, kKey };

struct Range {
  const char* name;
  double lowest, highest;  // of numbers with all their digits
  double room;
};

template <class T>
Range range_of(const char* name, double room) {
  return {name, static_cast<double>(std::numeric_limits<T>::min()), static_cast<double>(std::numeric_limits<T>::max()),
          room};
}

Range range_of(at::ScalarType dtype) {
  if (dtype == at::kDouble) return range_of<double>("float64", kProductRoom);
  if (dtype == at::kHalf) return range_of<at::Half>("float16", kHalfProductRoom);
  if (dtype == at::kBFloat16) return range_of<at::BFloat16>("bfloat16", kProductRoom);
  return range_of<float>("float32", kProductRoom);
}

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
    for (const TokenPositions* tokens : {&positions.query, &positions.key}) check_range(*tokens, dtype);
    shared.terms.query = rows(positions.query, Side::kQuery, dtype);
    shared.terms.key = rows(positions.key, Side::kKey, dtype);
    return shared;
  }

  void check_length(int64_t tokens) const override { check_range(ends_of_sequence(tokens).query, at::kFloat); }

  // Exponents count from the middle, which moves.
  bool changes_with_length() const override { return true; }

 private:
  // The smallest zeta, that of pair 0, is the first to leave the range: upwards in products of a query and a later key,
  // downwards in the vectors themselves, over half of the length.
  void check_range(const TokenPositions& tokens, at::ScalarType dtype) const {
    if (tokens.ids.numel() == 0) return;
    const Range range = range_of(dtype);
    const double factor = frequencies_.spec().attention_factor, decay = std::log((1 + kGamma) / kGamma);
    const double product = std::log(range.highest / range.room) - 2 * std::log(factor);
    const double vector = 2 * std::log(factor / range.lowest);
    const double steps = std::clamp(std::min(product, vector) / decay * scale_base_, 0.0, 0x1p53);
    const int64_t longest = 1 + static_cast<int64_t>(steps);
    const int64_t length = (tokens.end - tokens.first).max().item<int64_t>();
    if (length > longest) {
      fail("xpos", "a sequence must span at most {} positions for products of {} to stay in range, got {}", longest,
           range.name, length);
    }
  }

  Rotation rows(const TokenPositions& tokens, Side side, at::ScalarType dtype) const {
    const at::Tensor half_steps_BT = 2 * tokens.ids - tokens.first - tokens.end + 1;
    const double sign = side == Side::kQuery ? 1.0 : -1.0;
    const at::Tensor magnitude = at::pow(zeta_, half_steps_BT.unsqueeze(-1).to(at::kDouble) * (sign / 2 / scale_base_));
    const Rotation rotation = rotation_rows(tokens.ids, frequencies_.of(tokens.end), at::kDouble);
    const at::ScalarType type = ops::row_dtype(dtype);
    return {(rotation.cos * magnitude).to(type), (rotation.sin * magnitude).to(type)};
  }

  RotaryFrequencies frequencies_;
  std::string layout_;
  double scale_base_;
  at::Tensor zeta_;  // float64 [R/2]
};

std::shared_ptr<Encoding> make_xpos(io::StrictObject& options, const EncodingShape& shape) {
  const RopeSpec spec =
      read_rope_spec(options, {.head_dim = shape.head_dim, .max_position_embeddings = shape.max_position_embeddings});
  const double scale_base =
      options.number("scale_base", 512, {1, std::numeric_limits<double>::infinity(), io::NumberRange::Ends::kClosed});
  return std::make_shared<Xpos>(spec, read_layout(options, "pairs"), scale_base);
}

std::vector<std::string> xpos_keys() {
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
                   .extrapolates = "yes when causal, to 30,000 tokens (float32's range; 2,200 in float16)",
                   .file = "nn/posenc/xpos.cpp",
                   .test = "tests/nn/test_xpos.py",
                   .keys = xpos_keys()},
          .make = make_xpos};
}

}  // namespace rf::nn::posenc
