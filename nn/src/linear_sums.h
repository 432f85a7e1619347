// The two sums over keys of linear attention, with g(k) v^T summed before it is multiplied by a query, so no tensor has
// T x S elements.
#pragma once

#include <ATen/core/Tensor.h>

namespace rf::nn {

struct SumInput {
  at::Tensor q_BHTF, k_BHSF, v_BHSD;
  at::Tensor maximum_BHS;  // causal only; undefined means 0. The true k of key n is k times the exponential of this,
                           // which never decreases with n
};

// out_m = q_m . sum_n k_n v_n^T over all keys.
at::Tensor sum_over_keys(const SumInput& in);

// Same over the keys up to m + S - T, times the exponential of minus the maximum at the last such key (0 for a query
// without keys). sum_BHFD, maximum_BH: of the earlier keys, undefined without earlier keys; sum_BHFD becomes the sum
// over all keys.
at::Tensor causal_sum(const SumInput& in, at::Tensor& sum_BHFD, const at::Tensor& maximum_BH);

}  // namespace rf::nn
