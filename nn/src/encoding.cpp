// What an encoding does that does nothing.
#include "rf/nn/encoding.h"

namespace rf::nn {

at::Tensor Encoding::input(const TokenPositions&, at::ScalarType) {
  return {};
}

Shared Encoding::shared(const Positions&, at::ScalarType dtype) {
  return {.terms = {}, .table = {}, .dtype = dtype};
}

Terms Encoding::terms(int64_t, const Shared& shared, const Projections&) {
  return shared.terms;
}

}  // namespace rf::nn
