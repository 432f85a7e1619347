// Sandwich (Chi et al. 2023, arXiv 2212.10356; R-REL-12): the product of the sinusoids of two positions, which depends
// only on their distance, divided by ALiBi's ratios:
//
//   b(d) = (sum_i cos(d w_i) - bar_d / 2) H / (8 h)     w_i = 10000^(-2i / bar_d), i = 0 .. bar_d / 2 - 1; h = 1 .. H
//
// The constant bar_d / 2, which softmax cancels, makes b(0) = 0, so that 16-bit scores keep their precision. The paper
// is causal; b is symmetric. No parameters.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full_like.h>

#include <cmath>

#include "distance_bias.h"
#include "rf/io/error.h"

namespace rf::nn::posenc {

namespace {

class Sandwich : public DistanceBias {
 public:
  Sandwich(io::StrictObject& options, const EncodingShape& shape) : bar_d_(options.integer("bar_d", 128, 2, 4096)) {
    if (bar_d_ % 2 != 0) {
      fail("position_encoding", "{} must be even, a sine and a cosine for each frequency, got {}",
           options.path_of("bar_d"), bar_d_);
    }
    const double factor = 8.0 / static_cast<double>(shape.heads);
    ratio_H1_ = (at::arange(1, shape.heads + 1, at::kDouble) * factor).unsqueeze(1);
  }

 protected:
  at::Tensor rows(const at::Tensor& distance_R, at::ScalarType dtype) const override {
    at::Tensor sum_R = at::full_like(distance_R, -static_cast<double>(bar_d_ / 2));
    for (int64_t i = 0; i < bar_d_; i += 2) {
      sum_R.add_((distance_R * std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(bar_d_))).cos_());
    }
    return (sum_R / ratio_H1_).to(ops::row_dtype(dtype));
  }

 private:
  int64_t bar_d_;
  at::Tensor ratio_H1_;  // not a buffer: stays float64 when the model is cast
};

}  // namespace

EncodingEntry sandwich() {
  return {.info = {.name = "sandwich",
                   .summary = "the product of two positions' sinusoids, added to the scores, a ratio for each head",
                   .equation = "s q_m.k_n + (sum_i cos((m - n) w_i) - bar_d/2) H / (8 h), w_i = 10000^(-2i/bar_d)",
                   .source = "Chi et al. 2023, arXiv 2212.10356",
                   .terms = "b",
                   .cost = "T * S * H additions",
                   .extrapolates = "yes, by design",
                   .keys = {"bar_d = 128"}},
          .make = construct<Sandwich>};
}

}  // namespace rf::nn::posenc
