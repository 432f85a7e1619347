// Linear attention (arXiv 2104.09864 Eq. 18-19): softmax's exp(s q.k) is replaced by a product of feature maps, so the
// sums over keys are computed once for all queries. For head h, query m and key n,
//
//            sum_n (R_m f(q_m)) . (R_n g(k_n)) v_n
//   out_m = ---------------------------------------     R: rope_site after_map, Eq. 19, the numerator alone;
//            eps + sum_n f(q_m) . g(k_n)                both sums with rotate_denominator; absent: Eq. 18
//
// in time O((T + S) F D) and memory O(T + S) for F features; causal sums run over the keys up to the query's own. A
// query whose denominator is 0, for example one without keys, has output 0 and gradient 0. Terms per pair of tokens are
// not supported: it uses the rotations of queries and keys, and any other term is an Error. eps is added to the sum
// with the scale of nn/src/linear_attention_paths.h. Masked keys and values must be finite, because 0 times a NaN is a
// NaN. Values are not rotated, probabilities are not dropped. The feature maps are in nn/src/linear_attention_paths.h.
//
// The kernel of a call is chosen in nn/src/linear_attention.cpp, by device, dtype and kind, never by size or
// values (Kernel of rf/nn/attention.h):
//
//   fused      the chunks of core (core/include/rf/linear_attention.h): float32, bfloat16 and float16 on the CPU, first
//              derivatives; elu is mapped inside, other features are made before
//   explicit   products of torch, in every dtype, with derivatives of any order
//   ref        the float64 loops of core/ref over all pairs; also RF_KERNEL=ref
//   auto       fused where it can compute a call, else explicit
//
// fused does not support float64, other devices, trained rotations after the map, a state together with tensors that
// require grad, and RF_KERNEL=ref. Kernel::kFused then throws Error with the reason; kRef does so for all reasons
// except the dtype and RF_KERNEL.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>

#include "rf/model/linear_attention_config.h"
#include "rf/nn/attention.h"
#include "rf/nn/encoding_info.h"
#include "rf/nn/parameter.h"
#include "rf/ops/terms.h"

namespace rf::nn {

enum class Direction { kBidirectional, kCausal };

// Throws Error if linear attention does not support a model: an encoding with terms per pair of tokens, or the
// bidirectional shen_original in a causal model.
void check_linear_attention(const LinearAttentionConfig& config, const EncodingInfo& encoding, Direction direction);
// Random vectors for favor and relu, float64 [m, D]: a function of only (seed, layer, redraw) and the sizes.
struct FeatureDraw {
  bool orthogonal = true;
  int64_t orthogonal_scaling = 0;
  int64_t seed = 0, layer = 0, redraw = 0;
};
// SplitMix64 maps states that step by this to the numbers of its generator.
inline constexpr uint64_t kSplitmixStep = 0x9e3779b97f4a7c15u;
uint64_t splitmix(uint64_t state);
at::Tensor draw_features(int64_t num_features, int64_t head_dim, const FeatureDraw& draw);

// The sums over the keys so far, for token-by-token use; its size does not depend on their number. In the dtype of the
// computation, or in float64 for the fused kernel. Default: no key yet.
struct LinearAttentionState {
  at::Tensor sum_BHFD;    // of g(k) v^T, rotated as rope_site specifies
  at::Tensor norm_BHF1;   // of g(k)
  at::Tensor maximum_BH;  // shen and favor: both sums are divided by its exponential
};

struct LinearAttentionCall {
  Direction direction = Direction::kBidirectional;
  at::Tensor key_mask_BS = {};      // bool; false: masked; undefined: all true
  at::Tensor sequence_ids_BS = {};  // int, [1 or B, S]: tokens attend within equal values >= 0 of a row, -1 is padding;
                                    // queries are the last T keys of their rows; undefined: a row is one sequence
  LinearAttentionState* state = nullptr;  // causal, without sequences: earlier keys; k and v are added to it
  Kernel kernel = Kernel::kAuto;
};

// The kernel that auto selects for CPU tensors, without a state and with rotations that are not trained.
Kernel automatic_linear_kernel(at::ScalarType dtype);

// q: [B,T,H,D]; k: [B,S,Hk,D], v: [B,S,Hk,Dv], H a multiple of Hk; float32, float64, bfloat16 or float16 (computed in
// float32, also under autocast). Causal: query i attends to the keys of the state and the keys up to i + S - T; a state
// requires S = T. projection: [m, D], favor and relu only. Result: [B,T,H,Dv] in the dtype of q, with gradients to q,
// k, v, the rotations and projection.
at::Tensor linear_attention(const at::Tensor& q_BTHD, const at::Tensor& k_BSHD, const at::Tensor& v_BSHD,
                            const ops::Terms& terms, const LinearAttentionConfig& config, const at::Tensor& projection,
                            const LinearAttentionCall& call);

// A layer's linear attention. favor and relu have the buffers `projection` [m, D], `redraws` and `calls` (int64), so
// that a run resumed from a checkpoint continues as if never interrupted. In training mode, before each forward call
// whose number is a multiple of redraw_every, the vectors are redrawn in place.
class LinearAttention : public torch::nn::Module {
 public:
  LinearAttention(const LinearAttentionConfig& config, int64_t head_dim, int64_t layer);
  at::Tensor forward(const at::Tensor& q_BTHD, const at::Tensor& k_BSHD, const at::Tensor& v_BSHD,
                     const ops::Terms& terms, const LinearAttentionCall& call);

 private:
  void count_call();

  LinearAttentionConfig config_;
  int64_t layer_;
  Parameter projection_, redraws_, calls_;
};

}  // namespace rf::nn
