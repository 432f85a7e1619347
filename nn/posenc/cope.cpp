// Contextual position encoding (Golovneva et al. 2024, arXiv 2405.18719 section 4; R-REL-16): a query counts the tokens
// for which it opens a gate, and this count is the position of a key,
//
//   g_ij = sigmoid(s q_i.k_j)     p_ij = min(sum_{l = j .. i} g_il, npos_max - 1)
//   score(i,j) = s q_i.k_j + q_i.e[p_ij]
//
// with e between two rows of the table interpolated. Gates use scaled scores. All heads of a layer share one table [D,
// npos_max], which starts at 0, as in the paper's listing. Causal. Tokens are counted in the order of the row,
// regardless of their positions; padding between two tokens counts.
//
// A count needs all gates of a query, so one number per pair of tokens is stored: T x S for each head.
#include <ATen/TensorOperators.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/zeros.h>

#include <vector>

#include "layer_parameters.h"

namespace rf::nn::posenc {

namespace {

class Cope : public LengthFreeEncoding {
 public:
  Cope(io::StrictObject& options, const EncodingShape& shape) : head_dim_(shape.head_dim) {
    const int64_t places = options.integer("npos_max", 64, 1, int64_t{1} << 20);
    tables_DP_ = layer_parameters(*this, shape.layers, "pos_emb", [&] { return at::zeros({head_dim_, places}); });
  }

  bool reads_vectors() const override { return true; }

  Terms compute_terms(int64_t layer, const Shared&, const Projections& projections) override {
    const NoAutocast no_autocast;
    const ReadVectors x = read_vectors("cope", projections, head_dim_);
    const int64_t queries = x.q_BTHD.size(1), keys = x.k_BSHD.size(1);
    const at::Tensor gates_BHTS = x.scores().sigmoid().tril(keys - queries);
    const at::Tensor& table_DP = tables_DP_.at(layer);
    const at::Tensor from_key_BHTS = gates_BHTS.flip({-1}).cumsum(-1).flip({-1});
    const at::Tensor place_BHTS = from_key_BHTS.clamp_max(static_cast<double>(table_DP.size(1) - 1));
    const at::Tensor known_BHTS = place_BHTS.detach().nan_to_num(0);  // NaN still propagates through the factor below
    const at::Tensor below_BHTS = known_BHTS.floor();
    const at::Tensor all_BHTP = at::einsum("bthd,dp->bhtp", {x.q_BTHD, table_DP.to(x.q_BTHD.scalar_type())});
    const at::Tensor low = all_BHTP.gather(-1, below_BHTS.to(at::kLong));
    const at::Tensor high = all_BHTP.gather(-1, known_BHTS.ceil().to(at::kLong));
    return {.pair_bias = low + (place_BHTS - below_BHTS) * (high - low), .scale = x.scale};
  }

 private:
  int64_t head_dim_;
  std::vector<Parameter> tables_DP_;
};

}  // namespace

EncodingEntry cope() {
  return {.info = {.name = "cope",
                   .summary = "contextual positions: each query counts the preceding tokens whose gates are open",
                   .equation = "s q_i.k_j + q_i.e[sum_{l = j .. i} sigmoid(s q_i.k_l)]",
                   .source = "Golovneva et al. 2024, arXiv 2405.18719 section 4",
                   .terms = "P, s",
                   .parameters = "L * D * npos_max",
                   .cost = "T * S * H * D + T * H * D * npos_max multiply-adds, and T * S * H numbers in memory",
                   .extrapolates = "counts beyond npos_max share the last row",
                   .keys = {"npos_max = 64"},
                   .needs = EncodingInfo::Needs::kCausal},
          .make = construct<Cope>};
}

}  // namespace rf::nn::posenc
