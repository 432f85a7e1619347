// Relative vectors added to keys and values after the projection (Shaw et al. 2018, arXiv 1803.02155 Eq. 3-4; spec
// R-REL-01): row c + k is a_c, c = clip(j - i, -k, k). Each layer has its own vectors, shared by its heads.
//
// shaw-literal is arXiv 2104.09864 Eq. 5 as printed: k = W_k (x_n + p~k_r), v = W_v (x_n + p~v_r), r = clip(m - n,
// r_min, r_max). The vectors pass through the layer's projections without their biases. Row r - r_min is for
// distance r, query minus key. All layers share one pair of tables.
#include <vector>

#include "clipped_distances.h"
#include "layer_parameters.h"
#include "rf/io/error.h"

namespace rf::nn::posenc {

namespace {

class Shaw : public LengthFreeEncoding {
 public:
  Shaw(io::StrictObject& options, const EncodingShape& shape)
      : clip_(options.integer("max_relative_position", 16, 0, kMaxClip)) {
    const auto draw = [&] { return drawn({2 * clip_ + 1, shape.head_dim}, shape); };
    keys_CD_ = layer_parameters(*this, shape.layers, "key", draw);
    if (options.boolean("values", true)) values_CD_ = layer_parameters(*this, shape.layers, "value", draw);
  }

  Terms compute_terms(int64_t layer, const Shared&, const Projections&) override {
    return {.key_table = reversed(keys_CD_.at(layer)->unsqueeze(0), clip_),
            .value_table = values_CD_.empty() ? DistanceTable{} : reversed(values_CD_.at(layer)->unsqueeze(0), clip_)};
  }

 private:
  int64_t clip_;
  std::vector<Parameter> keys_CD_, values_CD_;
};

class ShawLiteral : public LengthFreeEncoding {
 public:
  ShawLiteral(io::StrictObject& options, const EncodingShape& shape)
      : lo_(options.integer("r_min", -16, -kMaxClip, kMaxClip)),
        hi_(options.integer("r_max", 16, -kMaxClip, kMaxClip)),
        shape_(shape) {
    if (lo_ > hi_) fail("shaw-literal", "r_min must not exceed r_max, got {} and {}", lo_, hi_);
    key_rows_PC_ = register_parameter("key", drawn({hi_ - lo_ + 1, shape.hidden_size}, shape));
    value_rows_PC_ = register_parameter("value", drawn({hi_ - lo_ + 1, shape.hidden_size}, shape));
  }

  bool reads_projections() const override { return true; }
  Terms compute_terms(int64_t, const Shared&, const Projections& projections) override {
    return {.key_table = projected(key_rows_PC_, projections.key_weight, "key"),
            .value_table = projected(value_rows_PC_, projections.value_weight, "value")};
  }

 private:
  DistanceTable projected(const at::Tensor& rows_PC, const at::Tensor& weight, const char* side) const {
    if (!weight.defined()) fail("shaw-literal", "the {} projection of the layer must be given, got none", side);
    return {.rows = projected_rows(rows_PC, weight, {}, shape_), .lo = lo_, .hi = hi_};
  }

  int64_t lo_, hi_;
  EncodingShape shape_;
  Parameter key_rows_PC_, value_rows_PC_;
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
                   .keys = {"max_relative_position = 16", "values = true"}},
          .make = construct<Shaw>};
}

EncodingEntry shaw_literal() {
  return {.info = {.name = "shaw-literal",
                   .summary = "a trained vector for each clipped distance that goes through W_k and W_v",
                   .equation = "K[r] = W_k p~k_r, V[r] = W_v p~v_r",
                   .source = "arXiv 2104.09864 Eq. 5",
                   .terms = "K, V",
                   .parameters = "2 * (r_max - r_min + 1) * C",
                   .cost = "2 * T * N * H * D multiply-adds, N = min(T + S, r_max - r_min + 1), and both "
                           "tables times W",
                   .extrapolates = "yes, far distances share the clipped row",
                   .keys = {"r_min = -16", "r_max = 16"}},
          .make = construct<ShawLiteral>};
}

}  // namespace rf::nn::posenc
