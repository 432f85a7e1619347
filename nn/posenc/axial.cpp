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
#include <utility>

#include "rf/nn/encoding.h"
#include "rotary_rows.h"

namespace rf::nn::posenc {

namespace {

class Axial : public Encoding {
 public:
  explicit Axial(RotaryRows rows) : rows_(std::move(rows)) {}

  Shared compute_shared(const Positions& positions, at::ScalarType dtype) override {
    require_one_axis("axial", positions);
    Shared shared;
    shared.terms = rotary_terms(rows_, positions, dtype);
    return shared;
  }
  int64_t last_new_length() const override { return 1; }

 private:
  RotaryRows rows_;
};

std::vector<std::string> axial_keys() {
  std::vector<std::string> keys = rotary_keys("pairs");
  keys.emplace_back("grid_width (required)");
  return keys;
}

}  // namespace

EncodingEntry axial() {
  return {.info = {.name = "axial",
                   .summary = "rotary on a grid: half of the head is rotated by the row, half by the column",
                   .equation = "score = s R_m q . R_n k, R_m rotating pair i by row(m) theta_i or column(m) theta_i",
                   .source = "Biderman et al. 2021, blog.eleuther.ai/rotary-embeddings",
                   .terms = "R^q, R^k",
                   .parameters = "0",
                   .cost = "(T + S) H D",
                   .extrapolates = "to more rows, as rotary embedding does",
                   .file = "nn/posenc/axial.cpp",
                   .test = "tests/nn/test_axial.py",
                   .keys = axial_keys(),
                   .invariance = EncodingInfo::Invariance::kNone},
          .make = [](io::StrictObject& options, const EncodingShape& shape) -> std::shared_ptr<Encoding> {
            return std::make_shared<Axial>(make_rotary_rows(RotaryForm::kAxial, options, shape));
          },
          .required_keys = [](int64_t) -> std::string { return R"({"grid_width":8})"; }};
}

}  // namespace rf::nn::posenc
