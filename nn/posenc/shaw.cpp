// Relative vectors added to keys and values after the projection (Shaw et al. 2018, arXiv 1803.02155 Eq. 3-4; spec
// R-REL-01). The paper uses key minus query: parameter row c + k is a_c, c = clip(j - i, -k, k). Attention terms use
// query minus key, so the rows are reversed. Each layer has its own vectors, shared by its heads. shaw_literal.cpp has
// the form that goes through W_k and W_v.
#include <vector>

#include "layer_parameters.h"
#include "rf/nn/encoding.h"

namespace rf::nn::posenc {

namespace {

enum class ValueTable { kAbsent, kPresent };

class Shaw : public Encoding {
 public:
  Shaw(int64_t clip, ValueTable values, const EncodingShape& shape) : clip_(clip) {
    const auto draw = [&] { return drawn({2 * clip + 1, shape.head_dim}, shape); };
    keys_CD_ = layer_parameters(*this, shape.layers, "key", draw);
    if (values == ValueTable::kPresent) values_CD_ = layer_parameters(*this, shape.layers, "value", draw);
  }

  Terms compute_terms(int64_t layer, const Shared&, const Projections&) override {
    Terms terms;
    terms.key_table = by_distance(keys_CD_.at(layer));
    if (!values_CD_.empty()) terms.value_table = by_distance(values_CD_.at(layer));
    return terms;
  }
  int64_t last_new_length() const override { return 1; }

 private:
  DistanceTable by_distance(const at::Tensor& rows_CD) const {
    return {.rows = rows_CD.flip(0).unsqueeze(0), .lo = -clip_, .hi = clip_};
  }

  int64_t clip_;
  std::vector<Parameter> keys_CD_, values_CD_;
};

}  // namespace

EncodingEntry shaw() {
  return {.info = {.name = "shaw",
                   .summary = "a trained vector for each clipped distance, added to keys and values",
                   .equation = "s q_m.(k_n + K[r]), sum_n a_mn (v_n + V[r])",
                   .source = "Shaw et al. 2018, arXiv 1803.02155 Eq. 3-4",
                   .terms = "K, V",
                   .parameters = "L * 2 * (2 max_relative_position + 1) * D",
                   .cost = "2 * T * N * H * D multiply-adds, N = min(T + S, 2 max_relative_position + 1)",
                   .extrapolates = "yes, far distances share the clipped row",
                   .file = "nn/posenc/shaw.cpp",
                   .test = "tests/nn/test_shaw.py",
                   .keys = {"max_relative_position = 16", "values = true"},
                   .pairwise = EncodingInfo::Pairwise::kYes},
          .make = [](io::StrictObject& options, const EncodingShape& shape) -> std::shared_ptr<Encoding> {
            const int64_t clip = options.integer("max_relative_position", 16, 0, (int64_t{1} << 23) - 1);
            const ValueTable values = options.boolean("values", true) ? ValueTable::kPresent : ValueTable::kAbsent;
            return std::make_shared<Shaw>(clip, values, shape);
          }};
}

}  // namespace rf::nn::posenc
