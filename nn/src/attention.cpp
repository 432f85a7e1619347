// Which path computes attention (rf/nn/attention.h), and packed sequences one after the other.
#include "rf/nn/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/where.h>
#include <c10/util/Exception.h>
#include <fmt/ranges.h>

#include <cmath>

#include "attention_paths.h"
#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "rf/ops/attention_ref.h"
#include "rf/ops/ops.h"
#include "rf/status.h"

namespace rf::nn {

namespace {

// Up to here torch's explicit products in bfloat16 take less time than its fused kernel: a quarter at 128 tokens, a
// third at 512, as much at 2048 (8, 2, 1 sequences, forward and backward).
constexpr int64_t kLongestExplicit = 1024;

bool only_rotations(const Terms& terms) {
  for (const DistanceTable* table :
       {&terms.key_table, &terms.query_table, &terms.value_table, &terms.bias, &terms.gate}) {
    if (table->defined()) return false;
  }
  for (const at::Tensor* tensor :
       {&terms.content_bias_HD, &terms.position_query_HPD, &terms.reset_row_H, &terms.reset_col_H}) {
    if (tensor->defined()) return false;
  }
  return true;
}

at::Tensor torch_attention(const at::Tensor& q_BTHD, const at::Tensor& k_BSHD, const at::Tensor& v_BSHD,
                           const Terms& terms, AttentionContext::State& state) {
  const int64_t heads = q_BTHD.size(2);
  const bool causal = state.mask().causal;
  const auto attend =
      state.mask().attend.defined() && !causal ? std::optional<at::Tensor>(state.mask().attend) : std::nullopt;
  return at::scaled_dot_product_attention(rotated(q_BTHD, terms.query, terms.layout).transpose(1, 2),
                                          heads_first(rotated(k_BSHD, terms.key, terms.layout), heads),
                                          heads_first(rotated(v_BSHD, terms.value, terms.layout), heads), attend, 0.0,
                                          causal, score_scale(terms, q_BTHD))
      .transpose(1, 2)
      .to(q_BTHD.scalar_type());
}

// RF_KERNEL=ref turns "auto" to the loops, which know no dropout.
Kernel choose(Kernel wanted, const AttentionDropout& dropout) {
  if (wanted != Kernel::kAuto || dropout.p > 0) return wanted;
  const std::string_view target = rf_target();
  TORCH_CHECK_VALUE(!target.empty(), rf_last_error());  // as every other use of the kernels answers
  return target == "ref" ? Kernel::kRef : Kernel::kAuto;
}

bool suits_torch(const at::Tensor& q_BTHD, const at::Tensor& k_BSHD, const Terms& terms,
                 const AttentionDropout& dropout) {
  const bool short_bfloat16 = q_BTHD.scalar_type() == at::kBFloat16 && q_BTHD.size(1) <= kLongestExplicit;
  return dropout.p == 0 && !short_bfloat16 && only_rotations(terms) && q_BTHD.numel() > 0 && k_BSHD.numel() > 0;
}

}  // namespace

Kernel kernel_of_name(std::string_view name) {
  if (name == "auto") return Kernel::kAuto;
  if (name == "fused") return Kernel::kFused;
  if (name == "explicit") return Kernel::kExplicit;
  if (name == "ref") return Kernel::kRef;
  fail("attention", "kernel must be auto, fused, explicit or ref, got {}", io::printable(std::string(name)));
}

at::Tensor rotated(const at::Tensor& x_BTHD, const Rotation& rotation, const std::string& layout) {
  if (!rotation.defined()) return x_BTHD;
  const at::ScalarType dtype = ops::row_dtype(x_BTHD.scalar_type());
  return ops::rotate(x_BTHD, rotation.cos.to(dtype), rotation.sin.to(dtype), layout);
}

at::Tensor heads_first(const at::Tensor& x_BSHD, int64_t heads) {
  const int64_t given = x_BSHD.size(2);
  if (given == heads) return x_BSHD.transpose(1, 2);
  return x_BSHD.transpose(1, 2).unsqueeze(2).expand({-1, -1, heads / given, -1, -1}).flatten(1, 2);
}

double score_scale(const Terms& terms, const at::Tensor& q_BTHD) {
  return terms.scale.value_or(1.0 / std::sqrt(static_cast<double>(q_BTHD.size(3))));
}

at::Tensor attention(const at::Tensor& q_BTHD, const at::Tensor& k_BSHD, const at::Tensor& v_BSHD, const Terms& terms,
                     const AttentionContext& context, const AttentionDropout& dropout) {
  AttentionContext::State& state = context.state();
  check_attention(q_BTHD, k_BSHD, v_BSHD, terms, state);
  const Kernel kernel = choose(state.kernel, dropout);
  if (kernel == Kernel::kFused) {
    fail("attention", "kernel must be auto, explicit or ref, this build has no fused kernel, got fused");
  }
  if (kernel == Kernel::kRef) {
    if (dropout.p > 0) fail("attention", "dropout must be 0 with kernel ref, got {}", dropout.p);
    return ops::attention_ref(q_BTHD, k_BSHD, v_BSHD, terms, state.positions.query.ids, state.positions.key.ids,
                              state.attend, state.window);
  }
  const at::Tensor out_BTHD = kernel == Kernel::kAuto && suits_torch(q_BTHD, k_BSHD, terms, dropout)
                                  ? torch_attention(q_BTHD, k_BSHD, v_BSHD, terms, state)
                                  : explicit_attention(q_BTHD, k_BSHD, v_BSHD, terms, state, dropout);
  const at::Tensor& alive_BTH1 = state.mask().alive_BTH1;
  return alive_BTH1.defined() ? at::where(alive_BTH1, out_BTHD, 0) : out_BTHD;
}

namespace {

// The ends of packed sequences as numbers.
std::vector<int64_t> checked_ends(const char* name, const at::Tensor& cu_seqlens, int64_t tokens) {
  const at::ScalarType type = cu_seqlens.scalar_type();
  if (cu_seqlens.dim() != 1 || cu_seqlens.size(0) == 0 || (type != at::kInt && type != at::kLong)) {
    fail("attention", "{} must be int32 or int64 [sequences + 1], got {} {}", name, toString(type),
         cu_seqlens.sizes().vec());
  }
  const at::Tensor ends = cu_seqlens.to(at::kCPU, at::kLong).contiguous();
  const int64_t* first = ends.const_data_ptr<int64_t>();
  const std::vector<int64_t> numbers(first, first + ends.numel());
  if (numbers.front() != 0) fail("attention", "{} must begin with 0, got {}", name, numbers.front());
  if (numbers.back() != tokens) {
    fail("attention", "{} must end with the number of tokens {}, got {}", name, tokens, numbers.back());
  }
  for (size_t i = 1; i < numbers.size(); ++i) {
    if (numbers[i] < numbers[i - 1]) {
      fail("attention", "{} must not fall, got {} after {}", name, numbers[i], numbers[i - 1]);
    }
  }
  return numbers;
}

// Tokens begin .. begin+count-1 of a side.
struct Slice {
  int64_t begin, count;
  at::Tensor operator()(const at::Tensor& x_BT) const { return x_BT.narrow(1, begin, count); }
  TokenPositions operator()(const TokenPositions& side) const {
    return {(*this)(side.ids), (*this)(side.first), (*this)(side.end)};
  }
  Rotation operator()(const Rotation& rotation) const {
    return rotation.defined() ? Rotation{(*this)(rotation.cos), (*this)(rotation.sin)} : rotation;
  }
};

}  // namespace

at::Tensor packed_attention(const at::Tensor& q_BTHD, const at::Tensor& k_BSHD, const at::Tensor& v_BSHD,
                            const Terms& terms, const Positions& positions, TokenWindow window,
                            const at::Tensor& cu_seqlens_query, const at::Tensor& cu_seqlens_key, Kernel kernel) {
  check_data(q_BTHD, k_BSHD, v_BSHD);
  if (q_BTHD.size(0) != 1) fail("attention", "packed sequences must have batch size 1, got {}", q_BTHD.size(0));
  const auto query_ends = checked_ends("cu_seqlens", cu_seqlens_query, q_BTHD.size(1)),
             key_ends = checked_ends("cu_seqlens_k", cu_seqlens_key, k_BSHD.size(1));
  if (query_ends.size() != key_ends.size()) {
    fail("attention", "cu_seqlens and cu_seqlens_k must have as many sequences, got {} and {}", query_ends.size() - 1,
         key_ends.size() - 1);
  }
  const AttentionContext all(positions, {}, window, kernel);
  check_attention(q_BTHD, k_BSHD, v_BSHD, terms, all.state());
  std::vector<at::Tensor> outputs;
  for (size_t i = 1; i < query_ends.size(); ++i) {
    const Slice query{query_ends[i - 1], query_ends[i] - query_ends[i - 1]},
        key{key_ends[i - 1], key_ends[i] - key_ends[i - 1]};
    Terms own = terms;
    own.query = query(terms.query);
    own.key = key(terms.key);
    own.value = key(terms.value);
    const AttentionContext context({query(positions.query), key(positions.key)}, {}, window, kernel);
    outputs.push_back(attention(query(q_BTHD), key(k_BSHD), key(v_BSHD), own, context));
  }
  if (outputs.empty()) return attention(q_BTHD, k_BSHD, v_BSHD, terms, all);
  return at::cat(outputs, 1);
}

}  // namespace rf::nn
