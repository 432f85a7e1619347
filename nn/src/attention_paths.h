// The ways to compute attention, behind attention() (rf/nn/attention.h). The caller has checked the arguments.
#pragma once

#include "attention_state.h"
#include "rf/nn/attention.h"

namespace rf::nn {

// x rotated by the rows of its tokens; x itself without a rotation.
at::Tensor rotated(const at::Tensor& x_BTHD, const Rotation& rotation, const std::string& layout);
// [B,S,Hk,D] as [B,H,S,D]: each key head serves H / Hk query heads.
at::Tensor heads_first(const at::Tensor& x_BSHD, int64_t heads);
double score_scale(const Terms& terms, const at::Tensor& q_BTHD);

// Products, softmax and gathers, each with its autograd. Allocates a few tensors [B,H,T,S].
at::Tensor explicit_attention(const at::Tensor& q_BTHD, const at::Tensor& k_BSHD, const at::Tensor& v_BSHD,
                              const Terms& terms, AttentionContext::State& state, const AttentionDropout& dropout);

}  // namespace rf::nn
