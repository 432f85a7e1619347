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
#include "rotary_rows.h"

namespace rf::nn::posenc {

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
          .required_keys = [](int64_t) -> std::string { return R"({"grid_width":8})"; }};
}

}  // namespace rf::nn::posenc
