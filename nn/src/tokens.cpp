// Positions, padding and packing of a forward pass (tokens.h).
#include "tokens.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include "rf/nn/devices.h"

namespace rf::nn {

namespace {

// The sequence of each token: its segment, or 0 and -1 for tokens that a mask shows and hides. Undefined if all are one
// sequence.
at::Tensor sequences_of(const Input& input) {
  if (input.ids_BT.size(0) == 0) return {};
  if (input.sequence_ids_BT.defined()) return input.sequence_ids_BT.to(at::kLong);
  if (!input.mask_BT.defined()) return {};
  const at::Tensor shown = input.mask_BT.ne(0);
  if (shown.all().item<bool>()) return {};
  return shown.to(at::kLong).sub(1);
}

}  // namespace

Input with_layout_on_cpu(Input input) {
  for (at::Tensor* x : {&input.mask_BT, &input.sequence_ids_BT, &input.positions_BT, &input.real_positions_BT}) {
    *x = on_cpu(*x);
  }
  return input;
}

Tokens make_tokens(const Input& input, int64_t padding_id) {
  at::Tensor ids_BT = input.positions_BT;
  if (!ids_BT.defined() && padding_id >= 0) {
    const at::Tensor counts_BT = on_cpu(input.ids_BT).ne(padding_id);
    ids_BT = counts_BT.cumsum(1).mul_(counts_BT).sub_(1);
  } else if (!ids_BT.defined()) {
    ids_BT = at::arange(input.ids_BT.size(1), at::dtype(at::kLong));
  }
  if (ids_BT.dim() == 1) ids_BT = ids_BT.unsqueeze(0);
  const at::Tensor sequence_ids_BS = sequences_of(input);
  Tokens result;
  result.positions = make_positions(ids_BT, ids_BT, sequence_ids_BS);
  result.positions.for_device(input.ids_BT.device());
  result.positions.query.real = result.positions.key.real = input.real_positions_BT;
  if (!sequence_ids_BS.defined()) return result;
  if (input.sequence_ids_BT.defined()) {
    result.sequence_ids_BS = sequence_ids_BS;
  } else {
    result.key_mask_BS = on_device(sequence_ids_BS.ge(0), input.ids_BT.device());
  }
  return result;
}

at::Tensor with_dropped(const at::Tensor& words_BTE, const Input& input, int64_t dropped_id) {
  const at::Tensor kept_BT = on_cpu(input.ids_BT).ne(dropped_id), sequence_ids_BT = on_cpu(sequences_of(input));
  at::Tensor share_BT = kept_BT.to(at::kFloat).mean(1, /*keepdim=*/true);
  if (input.sequence_ids_BT.defined()) {
    const at::Tensor same_BTT = sequence_ids_BT.unsqueeze(2).eq(sequence_ids_BT.unsqueeze(1));
    share_BT = same_BTT.logical_and(kept_BT.unsqueeze(1)).sum(-1) / same_BTT.sum(-1);
  } else if (sequence_ids_BT.defined()) {
    const at::Tensor shown_BT = sequence_ids_BT.ge(0);
    share_BT = shown_BT.logical_and(kept_BT).sum(1, /*keepdim=*/true) / shown_BT.sum(1, /*keepdim=*/true);
  }
  constexpr double kLeast = 1e-9;  // of texts of this token alone, which become 0
  const at::Tensor scale_BT1 = on_device((kept_BT / share_BT.clamp_min(kLeast)).unsqueeze(-1), words_BTE.device());
  return (words_BTE * scale_BT1).to(words_BTE.scalar_type());
}

AttentionContext self_attention_context(const Tokens& tokens, TokenWindow window) {
  if (tokens.sequence_ids_BS.defined()) {
    return AttentionContext::of_rows(tokens.positions, tokens.sequence_ids_BS, window);
  }
  const at::Tensor attend = tokens.key_mask_BS.defined() ? tokens.key_mask_BS.unsqueeze(1).unsqueeze(2) : at::Tensor();
  return {tokens.positions, attend, window};
}

AttentionContext cross_attention_context(const at::Tensor& ids_BT, int64_t keys, const at::Tensor& mask_BS) {
  const at::Tensor on_ids_BS = on_device(mask_BS, ids_BT.device());
  const at::Tensor attend = mask_BS.defined() ? on_ids_BS.unsqueeze(1).unsqueeze(2) : at::Tensor();
  Positions positions = make_positions(at::arange(ids_BT.size(1), at::kLong), at::arange(keys, at::kLong));
  return {positions.for_device(ids_BT.device()), attend, TokenWindow{}};
}

}  // namespace rf::nn
