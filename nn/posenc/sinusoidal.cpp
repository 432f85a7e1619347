// Fixed sinusoids of the position, added to the input embeddings (Vaswani et al. 2017; arXiv 2104.09864 Eq. 4 with k
// read as the position i, spec R-ABS-03..05). Defined at every position; no parameters, no stored table. The input is
// not multiplied by sqrt(E) first, as Vaswani's model does.
#include "rf/nn/encoding.h"
#include "sinusoid.h"

namespace rf::nn::posenc {

namespace {

class Sinusoidal : public Encoding {
 public:
  Sinusoidal(int64_t width, SinusoidLayout layout) : width_(width), layout_(layout) {}

  at::Tensor input(const TokenPositions& positions, at::ScalarType dtype) override {
    return sinusoid(positions.ids, width_, layout_, dtype).to(dtype);
  }

 private:
  int64_t width_;
  SinusoidLayout layout_;
};

}  // namespace

EncodingEntry sinusoidal() {
  return {.info = {.name = "sinusoidal",
                   .summary = "fixed sines and cosines of the position, added to the input",
                   .equation = "x_i + p_i, p_i[2t] = sin(i 10000^(-2t/E)), p_i[2t+1] = cos(i 10000^(-2t/E))",
                   .source = "Vaswani et al. 2017 section 3.5; arXiv 2104.09864 Eq. 4",
                   .terms = "-",
                   .parameters = "0",
                   .cost = "0",
                   .extrapolates = "defined at every position; models seldom work well beyond the trained ones",
                   .file = "nn/posenc/sinusoidal.cpp",
                   .test = "tests/nn/test_sinusoidal.py",
                   .keys = {"layout = \"interleaved\" (or \"half\", \"sine-only\")"},
                   .invariance = EncodingInfo::Invariance::kNone},
          .make = [](io::StrictObject& options, const EncodingShape& shape) -> std::shared_ptr<Encoding> {
            return std::make_shared<Sinusoidal>(shape.input_size, read_sinusoid_layout(options));
          }};
}

}  // namespace rf::nn::posenc
