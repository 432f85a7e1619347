// What all encodings do, and what one does that does nothing.
#include "rf/nn/encoding.h"

#include <nlohmann/json.hpp>

#include "rf/io/error.h"

namespace rf::nn {

at::Tensor Encoding::input(const TokenPositions&, at::ScalarType) {
  return {};
}

at::Tensor Encoding::words(const at::Tensor& words_BTE, const at::Tensor&, const TokenPositions&) const {
  return words_BTE;
}

at::Tensor Encoding::layer_input(int64_t, const Shared&) const {
  return {};
}

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
  Terms terms = compute_terms(layer, shared, projections);
  terms.query_positions = shared.positions.query.ids;
  terms.key_positions = shared.positions.key.ids;
  return terms;
}

Shared Encoding::compute_shared(const Positions&, at::ScalarType) {
  return {};
}

void Encoding::check_length(int64_t) const {}

at::Tensor Encoding::token_numbers(int64_t, const at::Tensor&) const {
  return {};
}

Terms Encoding::compute_terms(int64_t, const Shared& shared, const Projections&) {
  return shared.terms;
}

nlohmann::json to_json(const EncodingInfo& info) {
  return {{"name", info.name},
          {"summary", info.summary},
          {"equation", info.equation},
          {"source", info.source},
          {"terms", info.terms},
          {"parameters", info.parameters},
          {"cost", info.cost},
          {"extrapolates", info.extrapolates},
          {"file", info.file},
          {"test", info.test},
          {"keys", info.keys},
          {"needs_causal", info.needs == EncodingInfo::Needs::kCausal},
          {"shift_invariant", info.invariance == EncodingInfo::Invariance::kShift},
          {"pairwise", info.pairwise == EncodingInfo::Pairwise::kYes}};
}

}  // namespace rf::nn
