// Positions, padding and packing of a forward pass (tokens.h), and rows of a cache (rf/nn/cache.h).
#include "tokens.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "rf/io/error.h"
#include "rf/nn/devices.h"

namespace rf::nn {

namespace {

// [B,T] or, for positions, [B,T,axes].
at::Tensor expanded(const at::Tensor& x_BT, int64_t batch) {
  std::vector<int64_t> shape = x_BT.sizes().vec();
  shape[0] = batch;
  return x_BT.expand(shape);
}

// Concatenates two runs of tokens; either may have one row for all.
at::Tensor appended(const at::Tensor& before_BS, const at::Tensor& x_BT) {
  const int64_t batch = std::max(before_BS.size(0), x_BT.size(0));
  return at::cat({expanded(before_BS, batch), expanded(x_BT, batch)}, 1);
}

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

Tokens make_tokens(const Input& input, KeyValueCache* cache) {
  const int64_t batch = input.ids_BT.size(0), tokens = input.ids_BT.size(1), before = cache ? cache->tokens : 0;
  at::Tensor query_BT =
      input.positions_BT.defined() ? input.positions_BT : at::arange(before, before + tokens, at::dtype(at::kLong));
  if (query_BT.dim() == 1) query_BT = query_BT.unsqueeze(0);
  at::Tensor sequence_ids_BS = sequences_of(input), key_BS = query_BT;
  bool packed = input.sequence_ids_BT.defined() && sequence_ids_BS.defined();
  if (cache && before > 0) {
    key_BS = appended(cache->positions_BS, query_BT);
    packed = packed || cache->rows == KeyValueCache::Rows::kPacked;
    if (sequence_ids_BS.defined() || cache->sequence_ids_BS.defined()) {
      const auto of_one = [&](int64_t count) { return at::zeros({batch, count}, at::dtype(at::kLong)); };
      sequence_ids_BS = appended(cache->sequence_ids_BS.defined() ? cache->sequence_ids_BS : of_one(before),
                                 sequence_ids_BS.defined() ? sequence_ids_BS : of_one(tokens));
    }
  }
  if (cache) {
    cache->batch = batch;
    cache->tokens = before + tokens;
    cache->positions_BS = key_BS;
    cache->sequence_ids_BS = sequence_ids_BS;
    cache->rows = packed ? KeyValueCache::Rows::kPacked : KeyValueCache::Rows::kPadded;
  }
  Tokens result;
  result.positions = make_positions(query_BT, key_BS, sequence_ids_BS);
  result.positions.for_device(input.ids_BT.device());
  result.positions.query.real = result.positions.key.real = input.real_positions_BT;
  if (packed) {
    result.sequence_ids_BS = sequence_ids_BS;
  } else if (sequence_ids_BS.defined()) {
    result.key_mask_BS = on_device(sequence_ids_BS.ge(0), input.ids_BT.device());
  }
  return result;
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
