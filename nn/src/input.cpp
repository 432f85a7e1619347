// Checks of what a caller gives to a model (see input.h). They read ids, types, positions once; nothing is copied.
#include "input.h"

#include <ATen/ops/aminmax.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "rf/io/error.h"

namespace rf::nn {

namespace {

constexpr const char* kWhere = "input";

void check_dtype(const at::Tensor& tensor, at::ScalarType dtype, const char* name) {
  if (tensor.scalar_type() != dtype)
    fail(kWhere, "{} must be {}, got {}", name, toString(dtype), toString(tensor.scalar_type()));
}

void check_same_shape(const at::Tensor& tensor, const at::Tensor& ids_BT, const char* name) {
  if (tensor.sizes() != ids_BT.sizes()) {
    fail(kWhere, "{} must have the shape [{}] of the token ids, got [{}]", name, fmt::join(ids_BT.sizes(), ", "),
         fmt::join(tensor.sizes(), ", "));
  }
}

// Every value in first..last; the first offender is named with its place.
void check_range(const at::Tensor& values, int64_t first, int64_t last, const char* name) {
  if (values.numel() == 0) return;
  const auto [low, high] = at::aminmax(values);
  if (low.item<int64_t>() >= first && high.item<int64_t>() <= last) return;
  const at::Tensor place = values.lt(first).logical_or_(values.gt(last)).nonzero()[0];
  const int64_t column = place[-1].item<int64_t>();
  const int64_t row = values.dim() == 2 ? place[0].item<int64_t>() : 0;
  const int64_t value = (values.dim() == 2 ? values[row] : values)[column].item<int64_t>();
  fail(kWhere, "{} must be in {}..{}, got {} at row {}, column {}", name, first, last, value, row, column);
}

void check_cache(const KeyValueCache& cache, const ModelConfig& config, int64_t batch) {
  if (!config.is_decoder) fail(kWhere, "a cache needs causal attention (is_decoder), got a bidirectional model");
  if (cache.tokens == 0) return;
  if (static_cast<int64_t>(cache.layers.size()) != config.num_hidden_layers) {
    fail(kWhere, "a cache must be of a model with {} layers, got one with {}", config.num_hidden_layers,
         cache.layers.size());
  }
  const at::Tensor& kept = cache.layers[0].key_BSHD;
  if (kept.defined() && kept.size(0) != batch) {
    fail(kWhere, "the batch must be that of the cache, {}, got {}", kept.size(0), batch);
  }
}

void check_encoder_states(const Input& input, const ModelConfig& config, const KeyValueCache* cache) {
  const at::Tensor &states = input.encoder_hidden_BSC, &mask = input.encoder_mask_BS;
  const int64_t batch = input.ids_BT.size(0);
  if (!config.add_cross_attention) {
    if (states.defined() || mask.defined()) {
      fail(kWhere, "encoder states need a model with add_cross_attention, got them without");
    }
    return;
  }
  const bool kept = cache && cache->tokens > 0;
  if (kept) {
    if (states.defined() || mask.defined()) {
      fail(kWhere, "encoder states must be given at the first call with a cache only, got them again after {} tokens",
           cache->tokens);
    }
    return;
  }
  if (!states.defined()) fail(kWhere, "a model with add_cross_attention needs encoder states, got none");
  if (states.dim() != 3 || states.size(0) != batch || states.size(1) == 0 || states.size(2) != config.hidden_size) {
    fail(kWhere, "encoder states must be [{}, keys, {}] with at least one key, got [{}]", batch, config.hidden_size,
         fmt::join(states.sizes(), ", "));
  }
  if (mask.defined() && (mask.dim() != 2 || mask.sizes() != states.sizes().slice(0, 2))) {
    fail(kWhere, "the encoder mask must be [{}, {}], got [{}]", batch, states.size(1), fmt::join(mask.sizes(), ", "));
  }
}

}  // namespace

void check_input(const Input& input, const ModelConfig& config, const KeyValueCache* cache) {
  const at::Tensor& ids_BT = input.ids_BT;
  if (!ids_BT.defined() || ids_BT.dim() != 2) {
    fail(kWhere, "token ids must be [batch, tokens], got {} dimensions", ids_BT.defined() ? ids_BT.dim() : 0);
  }
  check_dtype(ids_BT, at::kLong, "token ids");
  if (ids_BT.size(1) == 0) fail(kWhere, "a sequence must have at least one token, got shape [{}, 0]", ids_BT.size(0));
  check_range(ids_BT, 0, config.vocab_size - 1, "token ids");
  if (input.mask_BT.defined()) {
    if (input.segments_BT.defined()) fail(kWhere, "segments and a mask exclude each other, got both");
    check_same_shape(input.mask_BT, ids_BT, "the mask");
  }
  if (input.types_BT.defined()) {
    check_same_shape(input.types_BT, ids_BT, "token types");
    check_dtype(input.types_BT, at::kLong, "token types");
    check_range(input.types_BT, 0, config.type_vocab_size - 1, "token types");
  }
  if (input.segments_BT.defined()) {
    check_same_shape(input.segments_BT, ids_BT, "segments");
    check_dtype(input.segments_BT, at::kInt, "segments");
    check_range(input.segments_BT, -1, std::numeric_limits<int32_t>::max(), "segments");
  }
  if (input.positions_BT.defined()) {
    if (input.positions_BT.sizes() != at::IntArrayRef{ids_BT.size(1)})
      check_same_shape(input.positions_BT, ids_BT, "positions");
    check_dtype(input.positions_BT, at::kLong, "positions");
    check_range(input.positions_BT, 0, int64_t{1} << 53, "positions");
  }
  if (cache) check_cache(*cache, config, ids_BT.size(0));
  check_encoder_states(input, config, cache);
}

}  // namespace rf::nn
