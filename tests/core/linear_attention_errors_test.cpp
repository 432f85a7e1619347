// Rules of linear attention, each broken once: the status, and the text "[linear_attention] rule, got value". Those
// that Python reaches too are in tests/ops/test_linear_attention_kernel.py.
#include <functional>

#include "core/linear_case.h"

namespace rf::tests {
namespace {

class LinearAttentionErrors : public testing::Test {
 protected:
  using Change = std::function<void(rf_linear_attention_args&, rf_linear_attention_grads&)>;
  // A good call of which something is changed.
  static void refused(const Change& change, const std::string& rule, const std::string& got, bool forward = true) {
    LinearCase problem(RF_F32, {}, {});
    change(problem.args, problem.grads);
    if (forward) expect_refused(rf_linear_attention_forward(&problem.args), rule, got, "[linear_attention] ");
    expect_refused(rf_linear_attention_backward(&problem.args, &problem.grads), rule, got, "[linear_attention] ");
  }
};

#define WITH(change) [](rf_linear_attention_args& x, rf_linear_attention_grads& g) { (void)x, (void)g, change; }

TEST_F(LinearAttentionErrors, Choices) {
  refused(WITH(x.dtype = static_cast<rf_dtype>(0)), "dtype must be", "0");
  refused(WITH(x.direction = static_cast<rf_linear_direction>(0)), "direction must be", "0");
  refused(WITH(x.denominator = static_cast<rf_linear_denominator>(3)), "denominator must be", "3");
  refused(WITH(x.feature_map = static_cast<rf_feature_map>(0)), "feature_map must be", "0");
}

TEST_F(LinearAttentionErrors, Extents) {
  refused(WITH(x.batch = -1), "batch must be >= 0", "-1");
  refused(WITH(x.queries = -2), "queries must be >= 0", "-2");
  refused(WITH(x.keys = -3), "keys must be >= 0", "-3");
  refused(WITH(x.heads = 0), "heads must be >= 1", "0");
  refused(WITH(x.queries = INT64_MAX / 2), "the size of q in bytes must fit in int64", "");
  refused(WITH(x.keys = INT64_MAX / 2), "the size of k in bytes must fit in int64", "");
  refused(WITH(x.batch = 0; x.features = int64_t{1} << 25), "features must be <= 2^24", "33554432");
  refused(WITH(x.batch = 0; x.value_dim = int64_t{1} << 25), "value_dim must be <= 2^24", "33554432");
}

TEST_F(LinearAttentionErrors, Arrays) {
  refused(WITH(x.q = nullptr), "q must not be NULL", "NULL");
  refused(WITH(x.k = nullptr), "k must not be NULL", "NULL");
  refused(WITH(x.v = nullptr), "v must not be NULL", "NULL");
  refused(WITH(x.out = nullptr), "out must not be NULL", "NULL");
  refused(WITH(x.q = static_cast<const char*>(x.q) + 1), "q must be aligned to its element of 4", "");
  refused(WITH(x.denominators = reinterpret_cast<float*>(reinterpret_cast<char*>(x.denominators) + 2)),
          "denominators must be aligned", "");
  refused(WITH(x.q_stride_t = INT64_MAX / 2), "extents times strides of q", "a stride of");
  refused(WITH(x.k_stride_b = INT64_MIN), "extents times strides of k", "a stride of");
  refused(WITH(x.v_stride_h = INT64_MAX), "extents times strides of v", "a stride of");
  refused(WITH(x.out_stride_h = INT64_MAX), "extents times strides of out", "a stride of");
  refused(WITH(x.key_mask_stride_s = INT64_MAX), "extents times strides of key_mask", "a stride of");
}

TEST_F(LinearAttentionErrors, RotationsAndState) {
  refused(WITH(x.query.sin = nullptr), "query must have both cos and sin or neither", "cos alone");
  refused(WITH(x.key.cos = nullptr), "key must have both cos and sin or neither", "sin alone");
  refused(WITH(x.layout = static_cast<rf_rope_layout>(3)), "layout must be", "3");
  refused(WITH(x.key.pairs = 0), "key.pairs must be in 1..3", "0");
  refused(WITH(x.key.cos = static_cast<const char*>(x.key.cos) + 1), "key must be aligned", "");
  static double state[2 * 2 * 6 * 6];
  refused(WITH(x.state = reinterpret_cast<double*>(reinterpret_cast<char*>(state) + 4)), "state must be aligned", "");
}

TEST_F(LinearAttentionErrors, ExponentsAndPacking) {
  static float exponents[2 * 3 * 2] = {};
  static double state[2 * 2 * 6 * 6], of_state[2 * 2] = {};
  refused(WITH(x.key_exponents = exponents; x.direction = RF_LINEAR_BIDIRECTIONAL),
          "direction must be RF_LINEAR_CAUSAL with key_exponents", "1");
  refused(WITH(x.key_exponents = exponents), "feature_map must be RF_FEATURES_GIVEN with key_exponents", "2");
  refused(WITH(x.feature_map = RF_FEATURES_GIVEN; x.key_exponents = reinterpret_cast<char*>(exponents) + 2),
          "key_exponents must be aligned", "");
  refused(WITH(x.feature_map = RF_FEATURES_GIVEN; x.key_exponents = exponents; x.state = state),
          "state_exponents must not be NULL", "NULL");
  constexpr const char* kRule = "key_exponents must be below infinity and not fall from key to key";
  for (const float value : {-1.0f, INFINITY, NAN}) {
    exponents[10] = value;  // the last key of the first head
    std::ostringstream got;
    got << value << " after 0";
    refused(WITH(x.feature_map = RF_FEATURES_GIVEN; x.key_exponents = exponents), kRule, got.str());
  }
  exponents[10] = 0, of_state[3] = 1;
  refused(WITH(x.feature_map = RF_FEATURES_GIVEN; x.key_exponents = exponents; x.state = state;
               x.state_exponents = of_state),
          kRule, "0 after 1");

  static const int64_t ends[] = {0, 2, 3}, late[] = {1, 3}, falling[] = {0, 3, 2}, shorter[] = {0, 2};
  const auto pack = [](const int64_t* q, const int64_t* k, int64_t sequences) {
    return [=](rf_linear_attention_args& x, rf_linear_attention_grads&) {
      x.batch = x.query.batch = x.key.batch = 1;
      x.cu_seqlens_q = q, x.cu_seqlens_k = k, x.sequences = sequences;
    };
  };
  refused(pack(ends, nullptr, 2), "cu_seqlens_q and cu_seqlens_k must be given together", "cu_seqlens_q alone");
  refused(pack(ends, ends, -1), "sequences must be >= 0", "-1");
  refused(pack(late, ends, 1), "cu_seqlens_q must begin with 0", "1");
  refused(pack(ends, falling, 2), "cu_seqlens_k must not decrease", "2 after 3");
  refused(pack(shorter, ends, 1), "cu_seqlens_q must end with queries = 3", "2");
  refused(WITH(x.cu_seqlens_q = x.cu_seqlens_k = ends; x.sequences = 2), "batch must be 1 with packed sequences", "2");
}

TEST_F(LinearAttentionErrors, Gradients) {
  constexpr bool kForward = false;
  static double state[2 * 2 * 6 * 6];
  refused(WITH(g.out = nullptr), "grads.out must not be NULL", "NULL", kForward);
  refused(WITH(g.out_stride_h = INT64_MAX), "extents times strides of grads.out", "a stride of", kForward);
  refused(WITH(x.denominators = nullptr), "denominators must not be NULL", "NULL", kForward);
  refused(WITH(x.state = state), "state must be NULL in the backward", "one", kForward);
  refused(WITH(g.k = static_cast<char*>(g.k) + 1), "grads.k must be aligned", "", kForward);
}

}  // namespace
}  // namespace rf::tests
