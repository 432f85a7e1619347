// Masks, distances and packed rows, each computed on first use (attention_state.h).
#include "attention_state.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <vector>

#include "known_values.h"
#include "packed_sequences.h"
#include "rf/nn/devices.h"

namespace rf::nn {

namespace {

bool excludes_any(const TokenWindow& window, int64_t queries, int64_t keys) {
  return (window.right >= 0 && window.right < queries - 1) || (window.left >= 0 && window.left < keys - 1);
}

// bool [1, 1, T, S], or with prefixes [B, 1, T, S].
at::Tensor window_mask(const TokenWindow& window, int64_t queries, int64_t keys, at::Device device) {
  const auto options = at::dtype(at::kLong).device(device);
  const at::Tensor step = at::arange(keys, options).unsqueeze(0) -
                          at::arange(keys - queries, keys, options).unsqueeze(1);  // j - (i + S - T)
  at::Tensor open;
  if (window.right >= 0) open = step.le(window.right);
  if (window.left >= 0) open = open.defined() ? open.logical_and_(step.ge(-window.left)) : step.ge(-window.left);
  if (!window.prefix.defined()) return open.unsqueeze(0).unsqueeze(0);
  const at::Tensor in_prefix_BS = at::arange(keys, options).unsqueeze(0).lt(window.prefix.unsqueeze(1));
  return open.logical_or(in_prefix_BS.unsqueeze(1).unsqueeze(2));
}

// Both sides as 0, 1, 2, .. plus an offset for each row of the batch; nothing if a step is not 1.
std::optional<at::Tensor> start_of_steps(const at::Tensor& ids_BT) {
  const at::Tensor start_BT = ids_BT - at::arange(ids_BT.size(1), ids_BT.options());
  const at::Tensor start_B1 = start_BT.narrow(1, 0, 1);
  if (!start_BT.eq(start_B1).all().item<bool>()) return std::nullopt;
  return start_B1;
}

}  // namespace

at::Tensor as_one_row(const at::Tensor& x_BT, int64_t batch) {
  if (!x_BT.defined() || batch == 1) return x_BT;
  std::vector<int64_t> sizes = x_BT.sizes().vec();
  sizes[0] = batch;
  return x_BT.expand(sizes).flatten(0, 1).unsqueeze(0);
}

AttentionContext::State::State(Positions positions, TokenWindow window, Kernel kernel)
    : positions(std::move(positions)),
      device(this->positions.device()),
      query_ids(on_device(this->positions.query.ids, device)),
      key_ids(on_device(this->positions.key.ids, device)),
      window(std::move(window)),
      kernel(kernel) {}

const at::Tensor& AttentionContext::State::attend() {
  if (!sequence_ids_BS.defined() || given_mask.defined()) return given_mask;
  const at::Tensor ids_BS = on_device(sequence_ids_BS, device);
  const at::Tensor key = ids_BS.unsqueeze(1).unsqueeze(2);
  const at::Tensor query = ids_BS.narrow(1, keys() - queries(), queries()).unsqueeze(1).unsqueeze(3);
  given_mask = query.eq(key).logical_and_(query.ge(0));
  return given_mask;
}

const std::optional<OneRow>& AttentionContext::State::one_row() {
  if (one_row_) return *one_row_;
  one_row_.emplace();
  if (!sequence_ids_BS.defined()) return *one_row_;
  if (const CuSeqlens found = cu_seqlens_of(sequence_ids_BS, queries()); found.defined()) {
    const int64_t batch = sequence_ids_BS.size(0);
    *one_row_ = {{on_device(found.q, device), on_device(found.k, device)},
                 as_one_row(query_ids, batch),
                 as_one_row(key_ids, batch)};
  }
  return *one_row_;
}

const Mask& AttentionContext::State::mask() {
  if (mask_) return *mask_;
  Mask mask;
  at::Tensor open = attend();
  while (open.defined() && open.dim() < 4) open = open.unsqueeze(0);
  if (excludes_any(window, queries(), keys())) {
    const at::Tensor near = window_mask(window, queries(), keys(), device);
    open = open.defined() ? open.logical_and(near) : near;
  }
  if (open.defined()) {
    const at::Tensor has_key_BHT1 = open.any(-1, /*keepdim=*/true);
    mask.attend = open;
    // A GPU would have to be waited for; the general form is right for every mask.
    if (!has_key_BHT1.is_cpu() || !values_are_known(has_key_BHT1) || !has_key_BHT1.all().item<bool>()) {
      mask.attend = open.logical_or(has_key_BHT1.logical_not());
      mask.has_key_BTH1 = has_key_BHT1.transpose(1, 2);
    }
  }
  mask_ = mask;
  return *mask_;
}

const at::Tensor& AttentionContext::State::additive_mask(at::ScalarType dtype) {
  const auto [entry, is_new] = additive_.try_emplace(dtype);
  if (is_new && mask().attend.defined()) {
    const at::Tensor zero = at::zeros({}, mask().attend.options().dtype(dtype));
    entry->second = at::where(mask().attend, zero, at::full_like(zero, -std::numeric_limits<double>::infinity()));
  }
  return entry->second;
}

std::optional<int64_t> AttentionContext::State::first_of_steps() {
  if (steps_) return *steps_;
  steps_.emplace();
  const auto readable = [](const at::Tensor& ids) { return ids.is_cpu() && values_are_known(ids); };
  if (!readable(positions.query.ids) || !readable(positions.key.ids)) return *steps_;
  if (positions.query.ids.numel() == 0 || positions.key.ids.numel() == 0) return *steps_;
  const auto query_B1 = start_of_steps(positions.query.ids), key_B1 = start_of_steps(positions.key.ids);
  if (!query_B1 || !key_B1) return *steps_;
  const at::Tensor first_B1 = *query_B1 - *key_B1;
  const int64_t first = first_B1[0].item<int64_t>();
  if (first_B1.eq(first).all().item<bool>()) *steps_ = first;
  return *steps_;
}

const at::Tensor& AttentionContext::State::rows_by_distance(int64_t lo, int64_t hi) {
  const auto [entry, is_new] = rows_.try_emplace({lo, hi});
  if (is_new) {
    const bool same = first_of_steps().has_value();  // then all rows have the same distances
    const auto ids = [&](const at::Tensor& of_side) { return same ? of_side.narrow(0, 0, 1) : of_side; };
    const at::Tensor distance_BTS = ids(query_ids).unsqueeze(2) - ids(key_ids).unsqueeze(1);
    entry->second = distance_BTS.clamp_(lo, hi).sub_(lo);
  }
  return entry->second;
}

AttentionContext::AttentionContext(Positions positions, at::Tensor mask, TokenWindow window, Kernel kernel)
    : state_(std::make_shared<State>(std::move(positions), std::move(window), kernel)) {
  state_->given_mask = std::move(mask);
}

AttentionContext::AttentionContext(Positions positions, CuSeqlens cu_seqlens, TokenWindow window, Kernel kernel)
    : state_(std::make_shared<State>(std::move(positions), std::move(window), kernel)) {
  state_->cu_seqlens = std::move(cu_seqlens);
}

AttentionContext AttentionContext::of_rows(Positions positions, at::Tensor sequence_ids_BS, TokenWindow window) {
  AttentionContext context(std::move(positions), at::Tensor(), std::move(window));
  context.state_->sequence_ids_BS = std::move(sequence_ids_BS);
  return context;
}

}  // namespace rf::nn
