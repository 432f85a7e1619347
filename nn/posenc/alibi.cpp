// A penalty that grows with distance (ALiBi, Press et al. 2022, arXiv 2108.12409): -slope_h |m - n|. Slopes are
// 2^(-8/n), 2^(-16/n), .. for n heads, a power of two; for other head counts, the slopes of the next lower power come
// first, then every second slope of the next higher power, as in the authors' code. The paper is causal; without causal
// attention the penalty is symmetric. No parameters.
#include <ATen/TensorOperators.h>
#include <ATen/ops/exp2.h>
#include <ATen/ops/tensor.h>

#include <bit>
#include <vector>

#include "distance_bias.h"

namespace rf::nn::posenc {

namespace {

at::Tensor slopes(int64_t heads) {
  const auto below = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  std::vector<int64_t> steps_H;  // -8 / (2 * below) per step
  for (int64_t h = 0; h < below; ++h) steps_H.push_back(2 * (h + 1));
  for (int64_t h = 0; h < heads - below; ++h) steps_H.push_back(2 * h + 1);
  return at::exp2(at::tensor(steps_H, at::kDouble) * (-4.0 / static_cast<double>(below)));
}

class Alibi : public DistanceBias {
 public:
  Alibi(io::StrictObject&, const EncodingShape& shape) : slopes_H1_(slopes(shape.heads).unsqueeze(1)) {}

 protected:
  at::Tensor rows(const at::Tensor& distance_R, at::ScalarType dtype) const override {
    return (-slopes_H1_ * distance_R.abs()).to(ops::row_dtype(dtype));
  }

 private:
  at::Tensor slopes_H1_;  // not a buffer: stays float64 when the model is cast
};

}  // namespace

EncodingEntry alibi() {
  return {.info = {.name = "alibi",
                   .summary = "a fixed penalty on scores, linear in the distance, a slope for each head",
                   .equation = "s q_m.k_n - slope_h |m - n|",
                   .source = "Press et al. 2022, arXiv 2108.12409 section 3",
                   .terms = "b",
                   .cost = "T * S * H additions",
                   .extrapolates = "yes, by design"},
          .make = construct<Alibi>};
}

}  // namespace rf::nn::posenc
