// First and last position of each token's sequence (positions.h).
#include "rf/nn/positions.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_unique.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "known_values.h"
#include "packed_sequences.h"
#include "rf/io/error.h"
#include "rf/nn/devices.h"

namespace rf::nn {

namespace {

void check_sequences(const at::Tensor& sequences, const at::Tensor& key_ids) {
  const int64_t batch = key_ids.size(0), keys = key_ids.size(1);
  const bool fits = at::isIntegralType(sequences.scalar_type(), false) && sequences.dim() == 2 &&
                    sequences.size(1) == keys && (sequences.size(0) == batch || sequences.size(0) == 1 || batch == 1);
  if (!fits) {
    fail("positions", "sequences must be integers [1 or {}, {}], got {} {}", batch, keys,
         toString(sequences.scalar_type()), sequences.sizes().vec());
  }
  constexpr int64_t kMaxSequence = std::numeric_limits<int32_t>::max();
  const int64_t lowest = sequences.min().item<int64_t>(), highest = sequences.max().item<int64_t>();
  if (lowest < -1 || highest > kMaxSequence) {
    fail("positions", "sequences must be -1 (padding) or in 0..{}, got {}", kMaxSequence,
         lowest < -1 ? lowest : highest);
  }
}

// A number for the sequence of each key, unique across rows, below twice the number of keys.
at::Tensor sequence_numbers(const at::Tensor& sequences, int64_t batch) {
  const at::Tensor ids_BS = sequences.to(at::kLong).expand({batch, -1});
  if (const auto runs = cu_seqlens_of(ids_BS, ids_BS.size(1)); runs.defined())
    return at::repeat_interleave(runs.k.diff());
  const at::Tensor row_B1 = at::arange(batch, at::dtype(at::kLong)).unsqueeze(1);
  const at::Tensor named_BS = sequences + row_B1 * (int64_t{1} << 32);
  return std::get<1>(at::_unique(named_BS, /*sorted=*/true, /*return_inverse=*/true)).flatten();
}

// The first position of each key's sequence and one past its last.
void set_sequences(TokenPositions& keys, const at::Tensor& sequences, const at::Tensor& number_N) {
  const int64_t tokens = keys.ids.size(1), batch = number_N.size(0) / tokens;
  const at::Tensor ids_BS = keys.ids.expand({batch, tokens});
  const at::Tensor is_padding_BS = sequences.lt(0);
  const auto reduced = [&](const char* how) {
    const at::Tensor found_N = at::zeros({2 * batch * tokens}, ids_BS.options())
                                   .scatter_reduce(0, number_N, ids_BS.flatten(), how, /*include_self=*/false);
    return at::where(is_padding_BS, ids_BS, found_N.index_select(0, number_N).view({batch, tokens}));
  };
  keys.first = reduced("amin");
  keys.end = reduced("amax").add_(1);
}

void check_differences_fit(const at::Tensor& ids) {
  for (const int64_t position : {ids.min().item<int64_t>(), ids.max().item<int64_t>()}) {
    if (position < -kMaxPosition || position > kMaxPosition) {
      fail("positions", "positions must be within 2^53, got {}", position);
    }
  }
}

}  // namespace

TokenPositions token_positions(const at::Tensor& given, const char* name) {
  const bool is_integer = given.defined() && at::isIntegralType(given.scalar_type(), false);
  if (!is_integer || given.dim() < 1 || given.dim() > 3 || (given.dim() == 3 && given.size(2) == 0)) {
    fail("positions", "{} positions must be integers [tokens], [batch, tokens] or [batch, tokens, axes], got {}", name,
         given.defined() ? fmt::format("{} of {} dimensions", toString(given.scalar_type()), given.dim()) : "none");
  }
  TokenPositions tokens;
  tokens.device = given.device();
  const at::Tensor whole = given.to(at::kLong);
  if (given.dim() == 3) tokens.axes = whole;
  tokens.ids = given.dim() == 3 ? whole.amax(2) : whole.dim() == 1 ? whole.unsqueeze(0) : whole;
  return tokens;
}

namespace {

TokenPositions positions_on_cpu(const at::Tensor& given, const char* name) {
  TokenPositions tokens = token_positions(given, name);
  tokens.ids = on_cpu(tokens.ids);
  tokens.axes = on_cpu(tokens.axes);
  return tokens;
}

}  // namespace

Positions make_positions(const at::Tensor& query, const at::Tensor& key, const at::Tensor& given_sequences) {
  const at::Tensor sequences = on_cpu(given_sequences);
  Positions positions;
  positions.query = positions_on_cpu(query, "query");
  const bool same = !key.defined() || key.is_same(query);
  positions.key = same ? positions.query : positions_on_cpu(key, "key");
  positions.for_device(positions.query.device);
  at::Tensor &query_ids = positions.query.ids, &key_ids = positions.key.ids;
  if (query_ids.numel() == 0 || key_ids.numel() == 0) {
    for (TokenPositions* side : {&positions.query, &positions.key}) side->first = side->end = side->ids;
    return positions;
  }
  if (query_ids.size(0) != key_ids.size(0) && query_ids.size(0) != 1 && key_ids.size(0) != 1) {
    fail("positions", "queries and keys must have one batch size, got {} and {}", query_ids.size(0), key_ids.size(0));
  }
  if (sequences.defined()) {
    check_sequences(sequences, key_ids);
    const int64_t batch = std::max(sequences.size(0), key_ids.size(0));
    set_sequences(positions.key, sequences, sequence_numbers(sequences, batch));
    const int64_t queries = query_ids.size(1), skipped = key_ids.size(1) - queries;
    if (skipped < 0) {
      fail("positions", "queries must be the last keys of their rows, got {} queries and {} keys", queries,
           key_ids.size(1));
    }
    positions.sequence_ids_BS = sequences;
    positions.query.first = positions.key.first.narrow(1, skipped, queries);
    positions.query.end = positions.key.end.narrow(1, skipped, queries);
    return positions;
  }
  at::Tensor first_B1 = key_ids.amin(1, true), last_B1 = key_ids.amax(1, true);
  if (!same) {
    first_B1 = at::minimum(first_B1, query_ids.amin(1, true));
    last_B1 = at::maximum(last_B1, query_ids.amax(1, true));
  }
  for (TokenPositions* side : {&positions.query, &positions.key}) {
    const int64_t batch = first_B1.size(0), tokens = side->ids.size(1);
    side->first = first_B1.expand({batch, tokens});
    side->end = (last_B1 + 1).expand({batch, tokens});
  }
  return positions;
}

Positions ends_of_sequence(int64_t tokens) { return make_positions(at::tensor({int64_t{0}, tokens - 1}, at::kLong)); }

std::pair<int64_t, int64_t> distance_range(const Positions& positions, int64_t farthest) {
  const at::Tensor &query = positions.query.ids, &key = positions.key.ids;
  if (query.numel() == 0 || key.numel() == 0) return {0, 0};
  check_on_cpu(query, "positions");
  check_on_cpu(key, "positions");
  check_differences_fit(query);
  check_differences_fit(key);
  const int64_t lo = std::clamp((query.amin(1) - key.amax(1)).min().item<int64_t>(), -farthest, farthest);
  const int64_t hi = std::clamp((query.amax(1) - key.amin(1)).max().item<int64_t>(), -farthest, farthest);
  if (hi - lo >= kMaxDistanceRows)
    fail("positions", "distances must span at most {} rows, got {} to {}", kMaxDistanceRows, lo, hi);
  return {lo, hi};
}

}  // namespace rf::nn
