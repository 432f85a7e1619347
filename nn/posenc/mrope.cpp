// Multimodal rotary embedding (Qwen2-VL, Wang et al. 2024, arXiv 2409.12191 section 2.1): a token has a position on
// each of three axes, time, height and width. The R/2 pairs are divided into the sections of mrope_section. Pair i is
// rotated by theta_i times the position on its section's axis, where theta_i is the frequency of ordinary rotary
// embedding. A text token has the same position on all axes, so for text both embeddings agree. Positions come as [B,
// T, 3] (TokenPositions::axes); without axes they are text positions. Sections are contiguous; the interleaved form of
// later models is not implemented.
#include <fmt/format.h>

#include "rf/io/error.h"
#include "rotary_rows.h"

namespace rf::nn::posenc {

namespace {

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

}  // namespace

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

}  // namespace rf::nn::posenc
