// Rotary embeddings for tokens of a picture, a video or a grid, which have positions on several axes.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>

#include <numbers>

#include "layer_parameters.h"
#include "rf/io/error.h"
#include "rotary_rows.h"

namespace rf::nn::posenc {

namespace {

// Rotary embedding for images and videos, with any number of axes (R-ROPE-12): each axis rotates its part of the head
// by the position on that axis, with the frequencies of a head of that part's size. axes_dims_rope, named as in
// diffusers, lists the sizes of the parts, for example [16, 56, 56] for time, height and width (HunyuanVideo, Kong et
// al. 2024, arXiv 2412.03603); without it the parts are equal, as in RoPE-Axial (Heo et al. 2024, arXiv 2403.13298),
// which has two axes and rope_theta 100.
//
//   theta_ai = rope_theta^(-2i / axes_dims_rope[a]), i < axes_dims_rope[a] / 2
//
// Pairs are numbered across the head, starting with the first axis. In layout "pairs" an axis has consecutive elements;
// in "halves", pair i is (i, i + R/2). Elements beyond the parts are not rotated. Positions come as [B, T, axes], or as
// flat indices in a grid of grid_shape, the last axis fastest; a first size of -1 is an axis without an end. "axial" is
// the case of two equal axes, and adds the scalings of rope_spec.h.
class AxialNd : public RotaryEncoding {
 public:
  using RotaryEncoding::RotaryEncoding;

  void check_positions(const Positions& positions, at::ScalarType) const override {
    const auto axes = static_cast<int64_t>(rows_.settings().axes_dims.size());
    for (const TokenPositions* tokens : {&positions.query, &positions.key}) {
      if (tokens->axes.defined()) {
        if (tokens->axes.size(2) != axes) {
          fail("axial-nd", "positions must have {} axes, got {}", axes, tokens->axes.size(2));
        }
      } else if (tokens->ids.numel() > 0) {
        rows_.check_on_grid(tokens->ids.min().item<int64_t>());
        rows_.check_on_grid(tokens->ids.max().item<int64_t>());
      }
    }
  }

  void check_length(int64_t tokens) const override { rows_.check_on_grid(tokens - 1); }
};

// Multimodal rotary embedding (Qwen2-VL, Wang et al. 2024, arXiv 2409.12191 section 2.1): a token has a position on
// each of three axes, time, height and width. The R/2 pairs are divided into the sections of mrope_section. Pair i is
// rotated by theta_i times the position on its section's axis, where theta_i is the frequency of ordinary rotary
// embedding. A text token has the same position on all axes, so for text both embeddings agree. Positions come as [B,
// T, 3] (TokenPositions::axes); without axes they are text positions. Sections are contiguous; the interleaved form of
// later models is not implemented.
constexpr int64_t kAxes = 3;

class Mrope : public RotaryEncoding {
 public:
  using RotaryEncoding::RotaryEncoding;

  void check_positions(const Positions& positions, at::ScalarType) const override {
    for (const at::Tensor& axes : {positions.query.axes, positions.key.axes}) {
      if (axes.defined() && axes.size(2) != kAxes)
        fail("mrope", "positions must have {} axes, got {}", kAxes, axes.size(2));
    }
  }
};

// A third of the pairs for height and for width, the others for time.
std::string sections(int64_t head_dim) {
  const int64_t pairs = head_dim / 2, third = pairs / 3;
  return fmt::format(R"({{"rope_parameters":{{"mrope_section":[{},{},{}]}}}})", pairs - 2 * third, third, third);
}

// RoPE-Mixed (Heo et al. 2024, arXiv 2403.13298 section 3.2; R-ROPE-12): a rotary embedding for images. Both
// coordinates rotate each pair, with frequencies that are trained for each head of each layer,
//
//   angle of pair i = x theta^x_i + y theta^y_i
//
// so a score may depend on differences in any direction, not only along the axes. Positions come as [B, T, 2], row y
// and column x, or as flat indices in a grid of grid_width columns. Layout and initial values are as in the authors'
// code. The layout is "pairs". A head draws an angle phi; with mag_t = rope_theta^(-4t/D), t < D/4, its first D/4 pairs
// have (theta^x, theta^y) = mag (cos phi, sin phi), the others mag (cos(phi + pi/2), sin(phi + pi/2)).
//
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
    const at::Tensor y_BT = flat ? tokens.ids.div(grid_width_, "floor") : tokens.axes.select(2, 0);
    const at::Tensor x_BT = flat ? tokens.ids.remainder(grid_width_) : tokens.axes.select(2, 1);
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

std::string grid_keys(int64_t) { return R"({"grid_width":8})"; }

}  // namespace

// Two-dimensional rotary embedding (R-ROPE-12; Biderman et al. 2021, "Rotary Embeddings: A Relative Revolution"): the
// head is split into two halves, one for each axis of a grid. Each half is a rotary embedding of that axis' coordinate,
// with the frequencies of a head of half the size. A position p is a token's flat index in a grid of grid_width
// columns: row = p / grid_width, column = p mod grid_width. A score depends on the differences of rows and columns.
// Adding a constant to all flat indices wraps columns around the grid's edge and changes scores, unless the constant is
// a multiple of grid_width.
//
// Pairs are numbered across the head: the row rotates the first half, the column the second. In layout "pairs" these
// pairs are the two halves of the head; in "halves", pair i is (i, i + D/2). partial_rotary_factor is the share of each
// half that is rotated; the other elements are the last ones. The scalings of rf/model/rope_spec.h apply, except the
// two that depend on the sequence length, which a grid does not have.
EncodingEntry axial() {
  return {.info = {.name = "axial",
                   .summary = "rotary on a grid: half of the head is rotated by the row, half by the column",
                   .equation = "score = s R_m q . R_n k, R_m rotating pair i by row(m) theta_i or column(m) theta_i",
                   .source = "Biderman et al. 2021, blog.eleuther.ai/rotary-embeddings",
                   .terms = "R^q, R^k",
                   .cost = "(T + S) H D",
                   .extrapolates = "to more rows, as rotary embedding does",
                   .keys = rotary_keys("pairs", {"grid_width (required)"}),
                   .invariance = EncodingInfo::Invariance::kNone,
                   .pairwise = EncodingInfo::Pairwise::kNo},
          .make = construct<RotaryEncoding, RotaryForm::kAxial>,
          .required_keys = grid_keys};
}

EncodingEntry axial_nd() {
  return {.info = {.name = "axial-nd",
                   .summary = "rotary on any number of axes, each rotating its own part of the head",
                   .equation = "score = s R_m q . R_n k, R_m rotating pair i of axis a by m_a theta_ai",
                   .source = "Heo et al. 2024, arXiv 2403.13298; Kong et al. 2024, arXiv 2412.03603",
                   .terms = "R^q, R^k",
                   .cost = "(T + S) H D",
                   .extrapolates = "to more places on an axis, as rotary embedding does",
                   .keys = {"layout = pairs", "rope_theta = 10000", "axes_dims_rope = equal parts of the head",
                            "grid_shape (required for positions without axes)"},
                   .invariance = EncodingInfo::Invariance::kNone,
                   .pairwise = EncodingInfo::Pairwise::kNo},
          .make = construct<AxialNd, RotaryForm::kAxialNd>,
          .required_keys = [](int64_t) -> std::string { return R"({"grid_shape":[-1,8]})"; }};
}

EncodingEntry mrope() {
  return {.info = {.name = "mrope",
                   .summary = "rotary on three axes, time, height and width, each rotating its section of the pairs",
                   .equation = "score = s R_m q . R_n k, R_m rotating pair i by m[axis(i)] theta_i",
                   .source = "Wang et al. 2024, arXiv 2409.12191 section 2.1",
                   .terms = "R^q, R^k",
                   .cost = "(T + S) H D",
                   .extrapolates = "with a scaling in rope_parameters; without one, poorly beyond the training length",
                   .keys = rotary_keys("halves", {"rope_parameters.mrope_section (required)"}),
                   .pairwise = EncodingInfo::Pairwise::kNo},
          .make = construct<Mrope, RotaryForm::kMrope>,
          .required_keys = sections};
}

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
      .required_keys = grid_keys};
}

}  // namespace rf::nn::posenc
