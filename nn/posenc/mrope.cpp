// Multimodal rotary embedding (Qwen2-VL, Wang et al. 2024, arXiv 2409.12191 section 2.1): a token has a position on
// each of three axes, time, height and width. The R/2 pairs are cut into the sections of mrope_section; pair i is
// rotated by theta_i times the position on its section's axis, theta_i being that of ordinary rotary embedding. A
// text's axes are equal, which makes it that embedding. Positions come as [B, T, 3] (TokenPositions::axes); without
// axes they are text. The sections are contiguous; the interleaved form of later models is not here.
#include <ATen/ops/cat.h>

#include "rf/io/error.h"
#include "rf/nn/encoding.h"
#include "rotary_rows.h"

namespace rf::nn::posenc {

namespace {

constexpr int64_t kAxes = 3;

class Mrope : public Encoding {
 public:
  Mrope(const RopeSpec& spec, std::string layout) : frequencies_(spec), layout_(std::move(layout)) {}

  Shared compute_shared(const Positions& positions, at::ScalarType dtype) override {
    Shared shared;
    shared.terms.layout = layout_;
    shared.terms.query = rows(positions.query, dtype);
    shared.terms.key = positions.same_tokens() ? shared.terms.query : rows(positions.key, dtype);
    return shared;
  }

  bool changes_with_length() const override { return frequencies_.spec().changes_with_length(); }

 private:
  Rotation rows(const TokenPositions& tokens, at::ScalarType dtype) const {
    const TokenFrequencies theta = frequencies_.of(tokens.end);
    if (!tokens.axes.defined()) return rotation_rows(tokens.ids, theta, dtype);
    if (tokens.axes.size(2) != kAxes) {
      fail("mrope", "positions must have {} axes, got {}", kAxes, tokens.axes.size(2));
    }
    std::vector<at::Tensor> cos, sin;
    int64_t first = 0;
    for (int64_t axis = 0; axis < kAxes; ++axis) {
      const int64_t pairs = frequencies_.spec().mrope_section[static_cast<size_t>(axis)];
      if (pairs == 0) continue;
      TokenFrequencies section = theta;
      section.hi = theta.hi.narrow(-1, first, pairs);
      if (theta.lo.defined()) section.lo = theta.lo.narrow(-1, first, pairs);
      const Rotation rotation = rotation_rows(tokens.axes.select(2, axis), section, dtype);
      cos.push_back(rotation.cos);
      sin.push_back(rotation.sin);
      first += pairs;
    }
    return {at::cat(cos, -1), at::cat(sin, -1)};
  }

  RotaryFrequencies frequencies_;
  std::string layout_;
};

std::shared_ptr<Encoding> make_mrope(io::StrictObject& options, const EncodingShape& shape) {
  const RopeSpec spec = read_rope_spec(options, {.head_dim = shape.head_dim,
                                                 .max_position_embeddings = shape.max_position_embeddings,
                                                 .mrope_section = MropeSection::kRequired});
  return std::make_shared<Mrope>(spec, read_layout(options, "halves"));
}

std::vector<std::string> mrope_keys() {
  std::vector<std::string> keys = rotary_keys("halves");
  keys.push_back("rope_parameters.mrope_section (required)");
  return keys;
}

}  // namespace

EncodingEntry mrope() {
  return {.info = {.name = "mrope",
                   .summary = "rotary on three axes, time, height and width, each rotating its section of the pairs",
                   .equation = "score = s R_m q . R_n k, R_m rotating pair i by m[axis(i)] theta_i",
                   .source = "Wang et al. 2024, arXiv 2409.12191 section 2.1",
                   .terms = "R^q, R^k",
                   .parameters = "0",
                   .cost = "(T + S) H D",
                   .extrapolates = "with a scaling in rope_parameters; without one, poorly beyond the training length",
                   .file = "nn/posenc/mrope.cpp",
                   .test = "tests/nn/test_mrope.py",
                   .keys = mrope_keys()},
          .make = make_mrope};
}

}  // namespace rf::nn::posenc
