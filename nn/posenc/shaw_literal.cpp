// arXiv 2104.09864 Eq. 5 as printed: k = W_k (x_n + p~k_r), v = W_v (x_n + p~v_r), r = clip(m - n, r_min, r_max). The
// vectors pass through the layer's projections without their biases (spec R-REL-01). Row r - r_min is for distance r,
// query minus key. All layers share one pair of tables. shaw.cpp has the form of Shaw et al.
#include "layer_parameters.h"
#include "rf/io/error.h"
#include "rf/nn/encoding.h"

namespace rf::nn::posenc {

namespace {

class ShawLiteral : public Encoding {
 public:
  ShawLiteral(int64_t lo, int64_t hi, const EncodingShape& shape) : lo_(lo), hi_(hi), shape_(shape) {
    key_rows_PC_ = register_parameter("key", drawn({hi - lo + 1, shape.hidden_size}, shape));
    value_rows_PC_ = register_parameter("value", drawn({hi - lo + 1, shape.hidden_size}, shape));
  }

  Terms compute_terms(int64_t, const Shared&, const Projections& projections) override {
    Terms terms;
    terms.key_table = projected(key_rows_PC_, projections.key_weight, "key");
    terms.value_table = projected(value_rows_PC_, projections.value_weight, "value");
    return terms;
  }
  int64_t last_new_length() const override { return 1; }

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
                   .file = "nn/posenc/shaw_literal.cpp",
                   .test = "tests/nn/test_shaw.py",
                   .keys = {"r_min = -16", "r_max = 16"},
                   .pairwise = EncodingInfo::Pairwise::kYes},
          .make = [](io::StrictObject& options, const EncodingShape& shape) -> std::shared_ptr<Encoding> {
            constexpr int64_t kMaxDistance = (int64_t{1} << 23) - 1;
            const int64_t lo = options.integer("r_min", -16, -kMaxDistance, kMaxDistance);
            const int64_t hi = options.integer("r_max", 16, -kMaxDistance, kMaxDistance);
            if (lo > hi) fail("shaw-literal", "r_min must not exceed r_max, got {} and {}", lo, hi);
            return std::make_shared<ShawLiteral>(lo, hi, shape);
          }};
}

}  // namespace rf::nn::posenc
