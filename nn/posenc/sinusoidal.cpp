// Fixed sinusoids of the position, added to the input embeddings (Vaswani et al. 2017; arXiv 2104.09864 Eq. 4 where k
// means the position i, spec R-ABS-03..05). Defined at every position, without parameters or a stored table.
// scale_embedding first multiplies word embeddings, but not token types, by sqrt(E) (Vaswani et al. section 3.4).
#include <ATen/TensorOperators.h>

#include <cmath>

#include "rf/model/computed_encoding.h"
#include "rotary_rows.h"

namespace rf::nn::posenc {

namespace {

class Sinusoidal : public LengthFreeEncoding {
 public:
  Sinusoidal(io::StrictObject& options, const EncodingShape& shape)
      : width_(shape.input_size), input_(read_sinusoidal(options)) {}

  at::Tensor input(const TokenPositions& positions, at::ScalarType dtype) override {
    return sinusoid(positions.real.defined() ? positions.real : positions.ids, width_, input_.layout, dtype).to(dtype);
  }

  at::Tensor words(const at::Tensor& words_BTE, const at::Tensor&, const TokenPositions&) const override {
    return input_.scale_embedding ? words_BTE * std::sqrt(static_cast<double>(width_)) : words_BTE;
  }
  bool changes_words() const override { return input_.scale_embedding; }
  bool acts_in_layers() const override { return false; }

 private:
  int64_t width_;
  SinusoidalInput input_;
};

}  // namespace

EncodingEntry sinusoidal() {
  return {.info = {.name = "sinusoidal",
                   .summary = "fixed sines and cosines of the position, added to the input",
                   .equation = "x_i + p_i, p_i[2t] = sin(i 10000^(-2t/E)), p_i[2t+1] = cos(i 10000^(-2t/E))",
                   .source = "Vaswani et al. 2017 section 3.5; arXiv 2104.09864 Eq. 4",
                   .extrapolates = "defined at every position; models seldom work well beyond the trained ones",
                   .keys = {"layout = \"interleaved\" (or \"half\", \"sine-only\")", "scale_embedding = false"},
                   .invariance = EncodingInfo::Invariance::kNone,
                   .pairwise = EncodingInfo::Pairwise::kNo},
          .make = construct<Sinusoidal>};
}

}  // namespace rf::nn::posenc
