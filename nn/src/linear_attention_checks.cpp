// What linear attention requires of its arguments (rf/nn/linear_attention.h). Every failure names the rule and the
// numbers.
#include <fmt/ranges.h>

#include <type_traits>
#include <utility>

#include "linear_attention_paths.h"
#include "rf/io/error.h"

namespace rf::nn {

namespace {

using ops::Rotation;
using ops::Terms;

void check_terms(const Terms& terms, const LinearAttentionConfig& config) {
  std::vector<const char*> refused;
  ops::for_each_term([&](const char*, const char* symbol, auto member) {
    const bool rotates = std::is_same_v<decltype(member), Rotation Terms::*>;
    if (!rotates && (terms.*member).defined()) refused.push_back(symbol);
  });
  if (!refused.empty()) {
    fail(kLinearAttention, "terms must be rotations, since linear attention has no pairwise terms, got {}",
         fmt::join(refused, ", "));
  }
  if (terms.value.defined()) fail(kLinearAttention, "values must not be rotated, got {}", "a rotation");
  const bool rotates = terms.query.defined() || terms.key.defined();
  if (rotates && config.rope_site == RopeSite::kNone) {
    fail(kLinearAttention, "rope_site must be after_map or before_map where the terms rotate, got {}", "none");
  }
}

void check_shapes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  for (const auto& [x, name] : {std::pair(&q, "q"), {&k, "k"}, {&v, "v"}}) {
    if (x->dim() != 4)
      fail(kLinearAttention, "{} must be [batch, tokens, heads, head_dim], got {} dimensions", name, x->dim());
    const at::ScalarType dtype = x->scalar_type();
    if (dtype != at::kFloat && dtype != at::kDouble && dtype != at::kBFloat16 && dtype != at::kHalf) {
      fail(kLinearAttention, "{} must be float32, float64, bfloat16 or float16, got {}", name, toString(dtype));
    }
    if (x->size(3) == 0) fail(kLinearAttention, "{} must have a head_dim of at least 1, got 0", name);
    if (dtype != q.scalar_type()) {
      fail(kLinearAttention, "{} must have the dtype of q, {}, got {}", name, toString(q.scalar_type()),
           toString(dtype));
    }
  }
  const bool agree = q.size(0) == k.size(0) && q.size(0) == v.size(0) && k.size(1) == v.size(1) &&
                     k.size(2) == v.size(2) && q.size(3) == k.size(3) && k.size(2) > 0 && q.size(2) % k.size(2) == 0;
  if (!agree) {
    fail(kLinearAttention, "q, k and v must agree in batch, keys, heads and head_dim, got [{}], [{}] and [{}]",
         fmt::join(q.sizes(), ", "), fmt::join(k.sizes(), ", "), fmt::join(v.sizes(), ", "));
  }
}

void check_devices(const LinearProblem& problem) {
  const Rotation &query = problem.terms.query, &key = problem.terms.key;
  const LinearAttentionState none;
  const LinearAttentionState& state = problem.call.state == nullptr ? none : *problem.call.state;
  const at::Tensor& ids_BS = problem.call.sequence_ids_BS;  // read on the CPU
  const at::Device device = problem.q_BTHD.device();
  for (const auto& [x, name] : {std::pair(&problem.k_BSHD, "k"),
                                {&problem.v_BSHD, "v"},
                                {&query.cos, "query_cos"},
                                {&query.sin, "query_sin"},
                                {&key.cos, "key_cos"},
                                {&key.sin, "key_sin"},
                                {&problem.projection_FD, "projection"},
                                {&problem.call.key_mask_BS, "key_mask"},
                                {&ids_BS, "cu_seqlens"},
                                {&state.sum_BHFD, "sum of the state"},
                                {&state.norm_BHF1, "norm of the state"},
                                {&state.maximum_BH, "maximum of the state"}}) {
    if (!x->defined() || x->device() == device || (x == &ids_BS && x->is_cpu())) continue;
    fail(kLinearAttention, "{} must be on the device of q, {}, got {}", name, device.str(), x->device().str());
  }
}

void check_row(const at::Tensor& x, const char* name, const at::Tensor& k_BSHD) {
  const bool one_row_fits = x.dim() == 2 && (x.size(0) == 1 || x.size(0) == k_BSHD.size(0));
  if (one_row_fits && x.size(1) == k_BSHD.size(1)) return;
  fail(kLinearAttention, "{} must be [1 or {}, {}], got [{}]", name, k_BSHD.size(0), k_BSHD.size(1),
       fmt::join(x.sizes(), ", "));
}

void check_call(const at::Tensor& q, const at::Tensor& k, const LinearAttentionConfig& config,
                const at::Tensor& projection, const LinearAttentionCall& call) {
  const bool causal = call.direction == Direction::kCausal;
  if (config.feature_map == FeatureMap::kShenOriginal && causal) {
    fail(kLinearAttention, "feature_map must not be shen_original in causal attention, got {}", "shen_original");
  }
  if (config.draws() != projection.defined()) {
    fail(kLinearAttention, "projection must be given with feature_map favor and relu, and only there, got {}",
         projection.defined() ? "one" : "none");
  }
  if (projection.defined() && (projection.dim() != 2 || projection.size(1) != q.size(3) || projection.size(0) < 1)) {
    fail(kLinearAttention, "projection must be [features, {}], got [{}]", q.size(3),
         fmt::join(projection.sizes(), ", "));
  }
  if (call.key_mask_BS.defined()) {
    check_row(call.key_mask_BS, "key_mask", k);
    if (call.key_mask_BS.scalar_type() != at::kBool) {
      fail(kLinearAttention, "key_mask must be bool, got {}", toString(call.key_mask_BS.scalar_type()));
    }
  }
  if (call.sequence_ids_BS.defined()) {
    check_row(call.sequence_ids_BS, "sequences", k);
    if (!at::isIntegralType(call.sequence_ids_BS.scalar_type(), false)) {
      fail(kLinearAttention, "sequences must be integers, got {}", toString(call.sequence_ids_BS.scalar_type()));
    }
    if (q.size(1) > k.size(1)) {
      fail(kLinearAttention, "packed queries must be the last keys of their rows, got {} queries and {} keys",
           q.size(1), k.size(1));
    }
  }
  if (call.state != nullptr && (!causal || call.sequence_ids_BS.defined() || q.size(1) != k.size(1))) {
    fail(kLinearAttention, "a state needs causal attention with as many queries as keys and no packing, got {}",
         !causal ? "bidirectional attention"
                 : fmt::format("{} queries and {} keys{}", q.size(1), k.size(1),
                               call.sequence_ids_BS.defined() ? ", packed" : ""));
  }
}

void check_rotation(const Rotation& rotation, const char* name, const at::Tensor& x_BTHD) {
  if (!rotation.defined()) return;
  const at::IntArrayRef shape = rotation.cos.sizes();
  const int64_t heads = x_BTHD.size(2);
  const bool has_rows = shape.size() == 3 || (shape.size() == 4 && (shape[2] == 1 || shape[2] == heads));
  const bool fits = has_rows && rotation.sin.sizes() == shape && shape[1] == x_BTHD.size(1) &&
                    (shape[0] == 1 || shape[0] == x_BTHD.size(0));
  if (fits) return;
  fail(kLinearAttention,
       "cos and sin of {} must be [1 or {}, {}, 1 or {}, pairs] or [1 or {}, {}, pairs], got [{}] and [{}]", name,
       x_BTHD.size(0), x_BTHD.size(1), heads, x_BTHD.size(0), x_BTHD.size(1), fmt::join(shape, ", "),
       fmt::join(rotation.sin.sizes(), ", "));
}

}  // namespace

void check_linear_attention(const LinearAttentionConfig& config, const EncodingInfo& encoding, Direction direction) {
  if (encoding.pairwise == EncodingInfo::Pairwise::kYes) {
    fail("linear_attention", "position_encoding must not have pairwise terms, got {} ({})", encoding.name,
         encoding.terms);
  }
  if (config.feature_map == FeatureMap::kShenOriginal && direction == Direction::kCausal) {
    fail("linear_attention", "feature_map must not be shen_original in causal attention, got {}", "shen_original");
  }
}

void check_linear_attention(const LinearProblem& problem) {
  check_terms(problem.terms, problem.config);
  check_devices(problem);
  check_shapes(problem.q_BTHD, problem.k_BSHD, problem.v_BSHD);
  check_call(problem.q_BTHD, problem.k_BSHD, problem.config, problem.projection_FD, problem.call);
  check_rotation(problem.terms.query, "queries", problem.q_BTHD);
  check_rotation(problem.terms.key, "keys", problem.k_BSHD);
}

void check_state(const LinearAttentionState& state, at::ScalarType dtype, const std::vector<int64_t>& sum_shape,
                 bool with_maximum) {
  const auto check = [&](const at::Tensor& given, const char* name, bool wanted, const std::vector<int64_t>& shape) {
    if (given.defined() != wanted) {
      fail(kLinearAttention, "a state must come from calls with the same feature_map, got one with{} {}",
           wanted ? "out" : "", name);
    }
    if (!wanted) return;
    if (given.sizes() != shape || (given.scalar_type() != dtype && given.scalar_type() != at::kDouble)) {
      fail(kLinearAttention, "{} of the state must be {} [{}], got {} [{}]", name, toString(dtype),
           fmt::join(shape, ", "), toString(given.scalar_type()), fmt::join(given.sizes(), ", "));
    }
  };
  const bool begun = state.sum_BHFD.defined();
  const int64_t batch = sum_shape[0], heads = sum_shape[1], features = sum_shape[2];
  check(state.sum_BHFD, "sum", begun, sum_shape);
  check(state.norm_BHF1, "norm", begun, {batch, heads, features, 1});
  check(state.maximum_BH, "maximum", begun && with_maximum, {batch, heads});
}

void check_rotated_size(const at::Tensor& features, const Rotation& rotation) {
  if (rotation.defined() && 2 * rotation.cos.size(-1) > features.size(-1)) {
    fail(kLinearAttention, "rotations must have at most the {} elements of the vectors (see rope_site), got {}",
         features.size(-1), 2 * rotation.cos.size(-1));
  }
}

}  // namespace rf::nn
