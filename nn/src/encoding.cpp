// The common part of all encodings.
#include "rf/nn/encoding.h"

#include <fmt/ranges.h>

#include "rf/io/error.h"

namespace rf::nn {

namespace {

void check_vectors(const Positions& positions, const Projections& given) {
  const auto check = [](const char* name, const at::Tensor& x, const at::Tensor& ids) {
    if (!x.defined()) fail("encoding", "terms must be given {}, which this encoding reads, got none", name);
    if (!x.is_floating_point()) fail("encoding", "{} must be floating-point, got {}", name, toString(x.scalar_type()));
    if (x.dim() == 4 && ids.size(0) != 1 && ids.size(0) != x.size(0)) {
      fail("encoding", "positions must be those of the {} rows of {}, got {}", x.size(0), name, ids.size(0));
    }
    if (x.dim() != 4 || x.size(1) != ids.size(1)) {
      fail("encoding", "{} must be [batch, {} tokens, heads, head_dim], got [{}]", name, ids.size(1),
           fmt::join(x.sizes(), ", "));
    }
  };
  check("queries", given.query_BTHD, positions.query.ids);
  check("keys", given.key_BSHD, positions.key.ids);
  const at::Tensor &q_BTHD = given.query_BTHD, &k_BSHD = given.key_BSHD;
  if (q_BTHD.size(0) != k_BSHD.size(0) || k_BSHD.size(2) < 1 || q_BTHD.size(2) % k_BSHD.size(2) != 0 ||
      q_BTHD.size(3) != k_BSHD.size(3)) {
    fail("encoding", "keys must fit queries [{}], got [{}]", fmt::join(q_BTHD.sizes(), ", "),
         fmt::join(k_BSHD.sizes(), ", "));
  }
}

}  // namespace

Shared Encoding::shared(const Positions& positions, at::ScalarType dtype) {
  Shared shared = compute_shared(positions, dtype);
  shared.positions = positions;
  shared.dtype = dtype;
  return shared;
}

Terms Encoding::terms(int64_t layer, const Shared& shared, const Projections& projections) {
  if (numbers_per_token() > 0) {
    const at::Tensor& numbers_BSN = projections.token_numbers_BSN;
    const int64_t keys = shared.positions.key.ids.size(1), given = numbers_BSN.defined() ? numbers_BSN.size(1) : -1;
    if (given != keys) {
      fail("encoding", "terms must be given hidden_states of all {} keys, which this encoding reads, got {}", keys,
           given < 0 ? "none" : std::to_string(given));
    }
  }
  if (reads_vectors()) check_vectors(shared.positions, projections);
  Terms terms = compute_terms(layer, shared, projections);
  terms.query_positions = shared.positions.query.ids;
  terms.key_positions = shared.positions.key.ids;
  return terms;
}

}  // namespace rf::nn
