// Fixed sinusoids of the clipped distance, added to keys and values after the projection (NEZHA, Wei et al. 2019, arXiv
// 1909.00204; spec R-REL-09). T[c] is the interleaved sinusoid of the index c = clip(j - i, -k, k) + k, from 0 to 2k,
// as in the authors' code; the paper's formula takes sines of j - i instead. Keys, values, heads and layers share one
// table. No parameters.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "rf/model/rotary_rows.h"
#include "rf/nn/encoding.h"

namespace rf::nn::posenc {

namespace {

class Nezha : public LengthFreeEncoding {
 public:
  Nezha(io::StrictObject& options, const EncodingShape& shape)
      : clip_(read_nezha_clip(options)), head_dim_(shape.head_dim) {}

  Shared compute_shared(const Positions&, at::ScalarType dtype) override {
    const at::Tensor rows_1CD = at::empty({1, 2 * clip_ + 1, head_dim_}, ops::row_dtype(dtype));
    at::get_num_threads();  // core uses as many
    if (dtype == at::kDouble) {
      nezha_rows(clip_, head_dim_, rows_1CD.mutable_data_ptr<double>());
    } else {
      nezha_rows(clip_, head_dim_, rows_1CD.mutable_data_ptr<float>());
    }
    const DistanceTable table = {rows_1CD, -clip_, clip_};
    return {.terms = {.key_table = table, .value_table = table}};
  }

 private:
  int64_t clip_, head_dim_;
};

}  // namespace

EncodingEntry nezha() {
  return {.info = {.name = "nezha",
                   .summary = "a fixed sinusoid for each clipped distance, added to keys and values",
                   .equation = "s q_m.(k_n + T[r]), sum_n a_mn (v_n + T[r])",
                   .source = "Wei et al. 2019, arXiv 1909.00204, and its code",
                   .terms = "K, V",
                   .cost = "2 * T * N * H * D multiply-adds, N = min(T + S, 2 max_relative_position + 1)",
                   .extrapolates = "yes, far distances share the clipped row",
                   .keys = {"max_relative_position = 64"}},
          .make = construct<Nezha>};
}

}  // namespace rf::nn::posenc
