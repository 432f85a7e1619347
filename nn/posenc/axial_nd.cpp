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
#include "rf/io/error.h"
#include "rotary_rows.h"

namespace rf::nn::posenc {

namespace {

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

}  // namespace

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

}  // namespace rf::nn::posenc
