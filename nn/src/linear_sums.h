// The two sums over keys of linear attention, with g(k) v^T summed before a query sees it: no tensor of T x S elements.
#pragma once

#include <ATen/core/Tensor.h>

namespace rf::nn {

struct SumInput {
  at::Tensor q_BHTF, k_BHSF, v_BHSD;
  at::Tensor maximum_BHS;  // causal only; undefined: 0. k of key n is to be multiplied by the exponential of this,
                           // which does not fall with n
};

// out_m = q_m . sum_n k_n v_n^T over all keys.
at::Tensor sum_over_keys(const SumInput& in);

// The same over the keys up to m + S - T, times the exponential of minus the maximum of the last of them (0 for a query
// without one). sum_BHFD, maximum_BH: the keys that came before, undefined when none; sum_BHFD becomes that of all
// keys.
at::Tensor causal_sum(const SumInput& in, at::Tensor& sum_BHFD, const at::Tensor& maximum_BH);

}  // namespace rf::nn
