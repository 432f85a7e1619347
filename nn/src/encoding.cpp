// What all encodings do, and what one does that does nothing.
#include "rf/nn/encoding.h"

#include <nlohmann/json.hpp>

namespace rf::nn {

at::Tensor Encoding::input(const TokenPositions&, at::ScalarType) {
  return {};
}

Shared Encoding::shared(const Positions& positions, at::ScalarType dtype) {
  Shared shared = compute_shared(positions, dtype);
  shared.query_positions = positions.query.ids;
  shared.key_positions = positions.key.ids;
  return shared;
}

Terms Encoding::terms(int64_t layer, const Shared& shared, const Projections& projections) {
  Terms terms = compute_terms(layer, shared, projections);
  terms.query_positions = shared.query_positions;
  terms.key_positions = shared.key_positions;
  return terms;
}

Shared Encoding::compute_shared(const Positions&, at::ScalarType) {
  return {};
}

void Encoding::check_length(int64_t) const {}

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
