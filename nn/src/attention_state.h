// The data of AttentionContext: positions and masks of a forward pass, and tensors that the first layer derives from
// them and later layers reuse. Not thread-safe.
#pragma once

#include <map>
#include <optional>
#include <utility>

#include "rf/nn/attention.h"
#include "rf/ops/attention.h"

namespace rf::nn {

// Mask of the keys to which queries may attend.
struct Mask {
  at::Tensor attend;        // bool, broadcasts to [B,H,T,S]; every row has a key: rows without keys are opened here ...
  at::Tensor has_key_BTH1;  // ... and false here, which sets their outputs to 0: [B or 1, T, H or 1, 1]; undefined if
                            // all rows have keys
};

// The rows of a batch concatenated: [1 or B, T, ..] as [1, B T, ..]. Undefined stays undefined.
at::Tensor as_one_row(const at::Tensor& x_BT, int64_t batch);

// Packed rows as one row, for the kernels.
struct OneRow {
  CuSeqlens cu_seqlens;
  at::Tensor query_ids, key_ids;  // [1, B T] and [1, B S]
};                                // on the device of the queries

struct AttentionContext::State {
  State(Positions positions, TokenWindow window, Kernel kernel);

  int64_t queries() const { return positions.query.ids.size(1); }
  int64_t keys() const { return positions.key.ids.size(1); }

  // The mask: the given one, or the mask of packed rows, bool [B,1,T,S]. Undefined: everything is allowed.
  const at::Tensor& attend();
  // Nothing if rows are not packed, or if a sequence is interrupted by another one.
  const std::optional<OneRow>& one_row();

  const Mask& mask();
  // attend as 0 and -inf; undefined without a mask.
  const at::Tensor& additive_mask(at::ScalarType dtype);
  // `first`, if positions of both sides step by 1 and all rows of the batch have the same distances, p_m - p_n =
  // first + m - n.
  std::optional<int64_t> first_of_steps();
  // r(m,n), int64 [1 or B, T, S].
  const at::Tensor& rows_by_distance(int64_t lo, int64_t hi);

  const Positions positions;            // on the CPU, unless an operator was given them elsewhere
  const at::Device device;              // of the queries; everything that the functions above return is there
  const at::Tensor query_ids, key_ids;  // of the positions, on the device
  at::Tensor given_mask;
  CuSeqlens cu_seqlens;        // of a batch of one, as given
  at::Tensor sequence_ids_BS;  // of packed rows; on the CPU
  const TokenWindow window;
  Kernel kernel;

 private:
  std::optional<std::optional<OneRow>> one_row_;
  std::optional<Mask> mask_;
  std::map<at::ScalarType, at::Tensor> additive_;
  std::optional<std::optional<int64_t>> steps_;
  std::map<std::pair<int64_t, int64_t>, at::Tensor> rows_;
};

// ---- the ways to compute attention, behind attention(), which has checked the arguments ----

// x rotated by the rows of its tokens; x itself without a rotation.
at::Tensor rotated(const at::Tensor& x_BTHD, const Rotation& rotation, const std::string& layout);
// [B,S,Hk,D] as [B,H,S,D]: each key head serves H / Hk query heads.
at::Tensor heads_first(const at::Tensor& x_BSHD, int64_t heads);
double score_scale(const Terms& terms, const at::Tensor& q_BTHD);

// Products, softmax and gathers, each with its autograd. Allocates a few tensors [B,H,T,S].
at::Tensor explicit_attention(const ops::AttentionCall& call, AttentionContext::State& state);

}  // namespace rf::nn
