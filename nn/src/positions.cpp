// First and last position of each token's sequence (positions.h).
#include "rf/nn/positions.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/scatter_reduce.h>
#include <ATen/ops/where.h>

#include <algorithm>

#include "rf/io/error.h"

namespace rf::nn {

namespace {

at::Tensor checked_ids(const at::Tensor& ids, const char* name) {
  if (!ids.defined() || (ids.dim() != 1 && ids.dim() != 2) || !at::isIntegralType(ids.scalar_type(), false)) {
    fail("positions", "{} positions must be integers [tokens] or [batch, tokens], got {}", name,
         ids.defined() ? fmt::format("{} of {} dimensions", toString(ids.scalar_type()), ids.dim()) : "none");
  }
  const at::Tensor whole = ids.to(at::kLong);
  return whole.dim() == 1 ? whole.unsqueeze(0) : whole;
}

// The lowest ("amin") or highest ("amax") position of each token's sequence. Group 0 of a row is its padding.
at::Tensor of_sequence(const at::Tensor& ids_BS, const at::Tensor& groups_BS, const char* reduce) {
  const int64_t groups = groups_BS.max().item<int64_t>() + 1;
  const at::Tensor found = at::full({ids_BS.size(0), groups}, 0, ids_BS.options())
                               .scatter_reduce(1, groups_BS, ids_BS, reduce, /*include_self=*/false);
  return at::where(groups_BS.eq(0), ids_BS, found.gather(1, groups_BS));
}

}  // namespace

Positions make_positions(const at::Tensor& query, const at::Tensor& key, const at::Tensor& sequences) {
  Positions positions;
  positions.query.ids = checked_ids(query, "query");
  const bool same = !key.defined() || key.is_same(query);
  positions.key.ids = same ? positions.query.ids : checked_ids(key, "key");
  at::Tensor &query_ids = positions.query.ids, &key_ids = positions.key.ids;
  if (query_ids.numel() == 0 || key_ids.numel() == 0) {
    for (TokenPositions* side : {&positions.query, &positions.key}) side->first = side->end = side->ids;
    return positions;
  }
  if (sequences.defined()) {
    const int64_t batch = std::max(sequences.size(0), key_ids.size(0));
    const at::Tensor groups_BS = sequences.to(at::kLong).add(1).expand({batch, key_ids.size(1)});
    const at::Tensor ids_BS = key_ids.expand({batch, key_ids.size(1)});
    positions.key.first = of_sequence(ids_BS, groups_BS, "amin");
    positions.key.end = of_sequence(ids_BS, groups_BS, "amax").add_(1);
    const int64_t queries = query_ids.size(1), skipped = key_ids.size(1) - queries;
    if (skipped < 0) {
      fail("positions", "queries must be the last keys of their rows, got {} queries and {} keys", queries,
           key_ids.size(1));
    }
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

std::pair<int64_t, int64_t> distance_range(const Positions& positions) {
  constexpr int64_t kMaxRows = int64_t{1} << 24;
  const at::Tensor &query = positions.query.ids, &key = positions.key.ids;
  if (query.numel() == 0 || key.numel() == 0) return {0, 0};
  const int64_t lo = (query.amin(1) - key.amax(1)).min().item<int64_t>();
  const int64_t hi = (query.amax(1) - key.amin(1)).max().item<int64_t>();
  if (hi - lo >= kMaxRows) fail("positions", "distances must span at most {} rows, got {} to {}", kMaxRows, lo, hi);
  return {lo, hi};
}

}  // namespace rf::nn
