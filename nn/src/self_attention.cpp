// Masks, rotation and the two ways to attend (see self_attention.h): explicit products where probabilities are dropped
// and for short bfloat16 sequences, torch's fused kernel otherwise.
#include "self_attention.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>

#include "rf/io/error.h"
#include "rf/ops/ops.h"

namespace rf::nn {

namespace {

// Up to here torch's explicit products in bfloat16 take less time than its fused kernel: a quarter at 128 tokens, a
// third at 512, as much at 2048 (8, 2, 1 sequences, forward and backward).
constexpr int64_t kLongestExplicit = 1024;

// Pairs (2i, 2i+1) turned by the angles whose sine and cosine are given, in the wider of both types.
at::Tensor rotate_pairs(const at::Tensor& x_BTHD, const at::Tensor& sin, const at::Tensor& cos) {
  const at::Tensor pairs = x_BTHD.unflatten(-1, {x_BTHD.size(-1) / 2, 2});
  const at::Tensor a = pairs.select(-1, 0), b = pairs.select(-1, 1);
  return at::stack({a * cos - b * sin, a * sin + b * cos}, -1).flatten(-2).to(x_BTHD.scalar_type());
}

at::Tensor additive(const at::Tensor& attend, at::ScalarType dtype) {
  const at::Tensor zero = at::zeros({}, dtype);
  return at::where(attend, zero, at::full_like(zero, -std::numeric_limits<double>::infinity()));
}

}  // namespace

AttentionMask make_attention_mask(const Input& input, bool is_decoder) {
  const int64_t tokens = input.ids_BT.size(1);
  at::Tensor attend;  // [B or 1, 1, T or 1, S]
  if (input.segments_BT.defined()) {
    const at::Tensor query = input.segments_BT.unsqueeze(1).unsqueeze(3),
                     key = input.segments_BT.unsqueeze(1).unsqueeze(2);
    attend = query.eq(key).logical_and_(query.ge(0));
  } else if (input.mask_BT.defined()) {
    const at::Tensor key = input.mask_BT.ne(0);
    if (!key.all().item<bool>()) attend = key.unsqueeze(1).unsqueeze(2);
  }
  if (is_decoder && tokens > 1) {
    const at::Tensor causal = at::ones({1, 1, tokens, tokens}, at::kBool).tril_();
    attend = attend.defined() ? attend.logical_and(causal) : causal;
  }
  AttentionMask mask;
  if (!attend.defined()) return mask;
  const at::Tensor alive = attend.any(-1, /*keepdim=*/true);  // [B or 1, 1, T or 1, 1]
  if (alive.all().item<bool>()) {
    mask.attend = attend;
  } else {
    mask.attend = attend.logical_or(alive.logical_not());
    mask.alive_BT11 = alive.transpose(1, 2);
  }
  return mask;
}

InputRotation::InputRotation(const Input& input, const at::Tensor& table_MD)
    : positions_(input.positions_BT.defined() ? input.positions_BT
                                              : at::arange(input.ids_BT.size(1), at::dtype(at::kLong))) {
  if (!table_MD.defined() || positions_.numel() == 0) return;
  const int64_t last = positions_.max().item<int64_t>();
  if (last >= table_MD.size(0)) {
    fail("model", "positions must be below the {} rows of the checkpoint's own position table, got {}",
         table_MD.size(0), last);
  }
  const at::Tensor rows = table_MD.index({positions_}).unsqueeze(-2);
  sin_ = rows.narrow(-1, 0, rows.size(-1) / 2);
  cos_ = rows.narrow(-1, rows.size(-1) / 2, rows.size(-1) / 2);
}

at::Tensor InputRotation::operator()(const at::Tensor& x_BTHD) const {
  if (sin_.defined()) return rotate_pairs(x_BTHD, sin_, cos_);
  ops::RopeOptions options;
  options.layout = "pairs";
  return ops::rope(x_BTHD, positions_, options);
}

at::Tensor attend(const at::Tensor& qkv_BTC, const InputRotation& rotation, AttentionMask& mask,
                  const AttentionOptions& options) {
  const int64_t heads = options.heads, batch = qkv_BTC.size(0), tokens = qkv_BTC.size(1), width = qkv_BTC.size(2) / 3;
  // What turns together is split off together: one pass over its memory.
  const int64_t turned = options.rotary_value ? 3 : 2;
  const auto parts = qkv_BTC.split_with_sizes({turned * width, (3 - turned) * width}, -1);
  const at::Tensor rotated_BTHD = rotation(parts[0].view({batch, tokens, turned * heads, width / heads}));
  const auto rotated = rotated_BTHD.transpose(1, 2).split(heads, 1);
  const at::Tensor q_BHTD = rotated[0], k_BHTD = rotated[1];
  const at::Tensor v_BHTD =
      options.rotary_value ? rotated[2] : parts[1].view({batch, tokens, heads, width / heads}).transpose(1, 2);
  at::Tensor out_BHTD;
  const bool low_precision = q_BHTD.scalar_type() == at::kBFloat16;
  if (options.dropout > 0 || (low_precision && tokens <= kLongestExplicit)) {
    const double scale = 1.0 / std::sqrt(static_cast<double>(width / heads));
    at::Tensor scores_BHTS = at::matmul(q_BHTD * scale, k_BHTD.transpose(2, 3));
    if (mask.attend.defined()) {
      if (!mask.bias.defined()) mask.bias = additive(mask.attend, scores_BHTS.scalar_type());
      scores_BHTS.add_(mask.bias);
    }
    at::Tensor probabilities_BHTS = at::softmax(scores_BHTS, -1);
    if (options.dropout > 0) {
      probabilities_BHTS = ops::dropout(probabilities_BHTS, options.dropout, static_cast<int64_t>(options.key->seed),
                                        options.key->next_stream());
    }
    out_BHTD = at::matmul(probabilities_BHTS, v_BHTD);
  } else {
    const auto attend = mask.attend.defined() ? std::optional<at::Tensor>(mask.attend) : std::nullopt;
    out_BHTD = at::scaled_dot_product_attention(q_BHTD, k_BHTD, v_BHTD, attend);
  }
  at::Tensor out_BTHD = out_BHTD.transpose(1, 2);
  if (mask.alive_BT11.defined()) out_BTHD = out_BTHD * mask.alive_BT11;
  return out_BTHD.reshape({batch, tokens, width});
}

}  // namespace rf::nn
