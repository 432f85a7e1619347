// RoPE-Mixed (Heo et al. 2024, arXiv 2403.13298 section 3.2; R-ROPE-12): a rotary embedding for images. Both
// coordinates rotate each pair, with frequencies that are trained for each head of each layer,
//
//   angle of pair i = x theta^x_i + y theta^y_i
//
// so a score may depend on differences in any direction, not only along the axes. Positions come as [B, T, 2], row y
// and column x, or as flat indices in a grid of grid_width columns. Layout and initial values are as in the authors'
// code. The layout is "pairs". A head draws an angle phi; with mag_t = rope_theta^(-4t/D), t < D/4, its first D/4 pairs
// have (theta^x, theta^y) = mag (cos phi, sin phi), the others mag (cos(phi + pi/2), sin(phi + pi/2)).
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/stack.h>

#include <numbers>
#include <vector>

#include "layer_parameters.h"
#include "rf/io/error.h"
#include "rf/nn/devices.h"
#include "rotary_rows.h"

namespace rf::nn::posenc {

namespace {

// Initial frequencies of a layer, [2, H, D/2]: for x and for y.
at::Tensor mixed_start(const EncodingShape& shape, double base) {
  const int64_t pairs = shape.head_dim / 2;
  if (EmptyParameters::wanted()) return at::empty({2, shape.heads, pairs}, at::kFloat);
  constexpr double kPi = std::numbers::pi;
  const at::Tensor exponent_t = at::arange(pairs / 2, at::kDouble) * (-4.0 / static_cast<double>(shape.head_dim));
  const at::Tensor mag_t = at::pow(base, exponent_t);
  const at::Tensor phi_H1 = at::rand({shape.heads, 1}, at::kFloat).to(at::kDouble) * (2 * kPi);
  const at::Tensor turned_H1 = phi_H1 + kPi / 2;
  const at::Tensor x_HP = at::cat({mag_t * phi_H1.cos(), mag_t * turned_H1.cos()}, 1);
  const at::Tensor y_HP = at::cat({mag_t * phi_H1.sin(), mag_t * turned_H1.sin()}, 1);
  return at::stack({x_HP, y_HP}).to(at::kFloat);
}

class RopeMixed : public LengthFreeEncoding {
 public:
  RopeMixed(io::StrictObject& options, const EncodingShape& shape) {
    if (shape.head_dim % 4 != 0) {
      fail("position_encoding", "head_dim must be a multiple of 4 for rope-mixed, got {}", shape.head_dim);
    }
    if (options.find("grid_width") == nullptr) {
      fail("position_encoding", "{} must be given, got none", options.path_of("grid_width"));
    }
    grid_width_ = options.integer("grid_width", 1, 1, int64_t{1} << 31);
    const double base = options.number("rope_theta", 10, {0, 1e100, io::NumberRange::Ends::kOpenLow});
    freqs_ = layer_parameters(*this, shape.layers, "freqs", [&] { return mixed_start(shape, base); });
  }

  Shared compute_shared(const Positions& positions, at::ScalarType) override {
    for (const TokenPositions* tokens : {&positions.query, &positions.key}) {
      if (tokens->axes.defined() && tokens->axes.size(2) != 2) {
        fail("rope-mixed", "positions must be flat or have 2 axes, got {}", tokens->axes.size(2));
      }
    }
    return {};
  }

  Terms compute_terms(int64_t layer, const Shared& shared, const Projections&) override {
    return rotations_of(shared.positions, "pairs",
                        [&](const TokenPositions& tokens) { return rows(freqs_.at(layer), tokens, shared.dtype); });
  }

 private:
  // [1 or B, T, H, D/2].
  Rotation rows(const at::Tensor& freqs_2HP, const TokenPositions& tokens, at::ScalarType dtype) const {
    const bool flat = !tokens.axes.defined();
    const at::Tensor given = on_device(flat ? tokens.ids : tokens.axes, freqs_2HP.device());
    const at::Tensor y_BT = flat ? given.div(grid_width_, "floor") : given.select(2, 0);
    const at::Tensor x_BT = flat ? given.remainder(grid_width_) : given.select(2, 1);
    const at::Tensor exact_2HP = freqs_2HP.to(at::kDouble);
    const auto along = [](const at::Tensor& at_BT, const at::Tensor& freqs_HP) {
      return at_BT.to(at::kDouble).unsqueeze(-1).unsqueeze(-1) * freqs_HP;
    };
    const at::Tensor angle_BTHP = along(x_BT, exact_2HP[0]) + along(y_BT, exact_2HP[1]);
    const at::ScalarType type = ops::row_dtype(dtype);
    return {.cos = angle_BTHP.cos().to(type), .sin = angle_BTHP.sin().to(type)};
  }

  int64_t grid_width_;
  std::vector<Parameter> freqs_;  // [2, H, D/2]
};

}  // namespace

EncodingEntry rope_mixed() {
  return {
      .info = {.name = "rope-mixed",
               .summary = "rotary on two axes at once, with trained frequencies for each head and layer",
               .equation = "score = s R_m q . R_n k, R_m rotating pair i by column(m) theta^x_hi + row(m) theta^y_hi",
               .source = "Heo et al. 2024, arXiv 2403.13298 section 3.2",
               .terms = "R^q, R^k",
               .parameters = "L * H * D",
               .cost = "(T + S) H D",
               .extrapolates = "to larger pictures, as rotary embedding does",
               .keys = {"grid_width (required)", "rope_theta = 10"},
               .invariance = EncodingInfo::Invariance::kNone,
               .pairwise = EncodingInfo::Pairwise::kNo},
      .make = construct<RopeMixed>,
      .required_keys = [](int64_t) -> std::string { return R"({"grid_width":8})"; }};
}

}  // namespace rf::nn::posenc
