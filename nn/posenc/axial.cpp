// Two-dimensional rotary embedding (R-ROPE-12; Biderman et al. 2021, "Rotary Embeddings: A Relative Revolution"): the
// head is split in two halves, one for each axis of a grid, and each half is a rotary embedding of its own coordinate
// with the frequencies of its own size. A position p is a token's flat index in a grid of grid_width columns:
// row = p / grid_width, column = p mod grid_width. A score depends on the difference of rows and of columns; moving all
// flat indices moves columns across the grid's edge, and scores with them, unless it is by whole rows.
//
// Pairs are numbered across the head: the first half of them is rotated by the row, the second by the column. In layout
// "pairs" these are the two halves of the head; in "halves", pair i is (i, i + D/2). partial_rotary_factor is the share
// of each half that is rotated; the other elements are the last ones. Scalings are those of rf/model/rope_spec.h
// but for the two that follow a sequence's length, which a grid does not have.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/remainder.h>

#include "rf/io/error.h"
#include "rf/nn/encoding.h"
#include "rotary_rows.h"

namespace rf::nn::posenc {

namespace {

class Axial : public Encoding {
 public:
  Axial(const RopeSpec& spec, std::string layout, int64_t grid_width)
      : frequencies_(spec), layout_(std::move(layout)), grid_width_(grid_width) {}

  Shared compute_shared(const Positions& positions, at::ScalarType dtype) override {
    require_one_axis("axial", positions);
    Shared shared;
    shared.terms.layout = layout_;
    shared.terms.query = rows(positions.query.ids, dtype);
    shared.terms.key = positions.same_tokens() ? shared.terms.query : rows(positions.key.ids, dtype);
    return shared;
  }

 private:
  Rotation rows(const at::Tensor& ids, at::ScalarType dtype) const {
    const Rotation row = rotation_rows(at::floor_divide(ids, grid_width_), frequencies_.initial(), dtype);
    const Rotation column = rotation_rows(at::remainder(ids, grid_width_), frequencies_.initial(), dtype);
    return {at::cat({row.cos, column.cos}, -1), at::cat({row.sin, column.sin}, -1)};
  }

  RotaryFrequencies frequencies_;
  std::string layout_;
  int64_t grid_width_;
};

std::shared_ptr<Encoding> make_axial(io::StrictObject& options, const EncodingShape& shape) {
  if (shape.head_dim % 4 != 0) {
    fail("position_encoding", "head_dim must be a multiple of 4, as each axis rotates pairs of its half, got {}",
         shape.head_dim);
  }
  const RopeSpec spec = read_rope_spec(
      options, {.head_dim = shape.head_dim / 2, .max_position_embeddings = shape.max_position_embeddings});
  if (spec.changes_with_length()) {
    fail("position_encoding", "rope_type must not depend on the length of a sequence on a grid, got {}",
         name(spec.type));
  }
  if (options.find("grid_width") == nullptr) {
    fail("position_encoding", "{} must be given, got none", options.path_of("grid_width"));
  }
  const int64_t grid_width = options.integer("grid_width", 1, 1, int64_t{1} << 31);
  return std::make_shared<Axial>(spec, read_layout(options, "pairs"), grid_width);
}

std::vector<std::string> axial_keys() {
  std::vector<std::string> keys = rotary_keys("pairs");
  keys.push_back("grid_width (required)");
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
          .make = make_axial};
}

}  // namespace rf::nn::posenc
