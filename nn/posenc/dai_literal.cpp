// Eq. 7 of arXiv 2104.09864 before u and v replace the query's position: Eq. 6 with relative keys only in its second
// and fourth term, as notes on the paper print it under "Method 1",
//
//   score(m,n) = s [ x_m W_q^T W_k x_n + x_m W_q^T W_r R[m-n] + p_m W_q^T W_k x_n + p_m W_q^T W_r R[m-n] ]
//              = s (W_q (x_m + p_m)).(k_n + W_r R[m-n])
//
// W_r and R are as in transformer_xl.cpp, and p_m is the sinusoid at the position, in the layout of R. It goes through
// W_q without its bias, which q already contains. So scores depend on the absolute position of the query. Attention
// takes the second term as a table. The last two terms depend on keys, so they are passed as one number per pair: T x S
// for each head in memory.
#include <ATen/TensorOperators.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/linear.h>

#include "projected_sinusoids.h"
#include "rf/nn/devices.h"

namespace rf::nn::posenc {

namespace {

class DaiLiteral : public ProjectedSinusoids {
 public:
  DaiLiteral(io::StrictObject& options, const EncodingShape& shape) : ProjectedSinusoids(shape, options) {
    make_weights();
  }

  bool reads_vectors() const override { return true; }
  bool reads_projections() const override { return true; }

  Shared compute_shared(const Positions& positions, at::ScalarType) override {
    require_one_axis(name_, positions);
    return {.table = sinusoids_by_distance(positions)};
  }

  Terms compute_terms(int64_t layer, const Shared& shared, const Projections& projections) override {
    const NoAutocast no_autocast;
    const at::Tensor& weight = query_weight(projections, "the query projection of the layer must be given");
    const ReadVectors x = read_vectors(name_, projections, shape_.head_dim);
    const at::ScalarType type = x.k_BSHD.scalar_type();
    const DistanceTable keys{
        .rows = projected_rows(shared.table.rows.squeeze(0).to(type), weights_.at(layer)->to(type), {}, shape_),
        .lo = shared.table.lo,
        .hi = shared.table.hi};
    const at::Tensor& ids_BT = shared.positions.query.ids;
    const at::Tensor query_BT = on_device(ids_BT, weight.device()),
                     key_BS = on_device(shared.positions.key.ids, weight.device());
    const at::Tensor at_BTHD = at::linear(on_device(sinusoids(ids_BT), weight.device()).to(type), weight.to(type))
                                   .unflatten(-1, {shape_.heads, shape_.head_dim});
    const at::Tensor content_BHTS = at::einsum("bthd,bshd->bhts", {at_BTHD, x.k_BSHD});
    const at::Tensor by_row_BHTR = at::einsum("bthd,hrd->bhtr", {at_BTHD, keys.rows});
    const at::Tensor row_BTS = query_BT.unsqueeze(-1) - key_BS.unsqueeze(-2) - keys.lo;
    const at::Tensor position_BHTS = by_row_BHTR.expand({row_BTS.size(0), -1, -1, -1})
                                         .gather(-1, row_BTS.unsqueeze(1).expand({-1, shape_.heads, -1, -1}));
    return {.key_table = keys, .pair_bias = (content_BHTS + position_BHTS) * x.scale, .scale = x.scale};
  }
};

}  // namespace

EncodingEntry dai_literal() {
  return {
      .info = {.name = "dai-literal",
               .summary = "transformer-xl with the query's absolute position in place of the two trained biases",
               .equation = "score = s (q + W_q p_m).(k + W_r R[r])",
               .source = "arXiv 2104.09864 Eq. 6-7, between the two; Dai et al. 2019, arXiv 1901.02860",
               .terms = "K, P, s",
               .parameters = "L * C * H * D",
               .cost = "T * (T + 3 S) * H * D multiply-adds, (T + S) * C * H * D for the table, and T * S * H numbers "
                       "in memory",
               .extrapolates = "sinusoids exist everywhere; beyond the trained positions nothing was learned",
               .invariance = EncodingInfo::Invariance::kNone},
      .make = construct<DaiLiteral>};
}

}  // namespace rf::nn::posenc
