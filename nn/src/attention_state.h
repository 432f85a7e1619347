// What AttentionContext holds: the positions and masks of a forward pass, and what the first layer that needs it
// derives from them for the others. Not for use by several threads at once.
#pragma once

#include <map>
#include <optional>
#include <utility>

#include "rf/nn/attention.h"

namespace rf::nn {

// Positions of both sides when they step by 1 and all rows of the batch have the same distances: p_m - p_n =
// first + m - n.
struct Steps {
  int64_t first = 0;
};

// Which keys the queries may attend to.
struct Mask {
  at::Tensor attend;        // bool, broadcasts to [B,H,T,S]; every row has a key: rows without one are opened here ...
  at::Tensor has_key_BTH1;  // ... and their outputs are 0: false here, [B or 1, T, H or 1, 1]; undefined: none
};

// The rows of a batch one after the other: [1 or B, T, ..] as [1, B T, ..]. Undefined stays undefined.
at::Tensor as_one_row(const at::Tensor& x_BT, int64_t batch);

// Packed sequences as the kernels take them, with the rows of the batch one after the other in one row.
struct Packing {
  PackedSequences ends;
  at::Tensor query_ids, key_ids;  // [1, B T] and [1, B S]
};

struct AttentionContext::State {
  State(Positions positions, at::Tensor attend, TokenWindow window, Kernel kernel);

  int64_t queries() const { return positions.query.ids.size(1); }
  int64_t keys() const { return positions.key.ids.size(1); }

  // What a mask allows: the one given, or that of packed rows, bool [B,1,T,S]. Undefined: everything.
  const at::Tensor& attend();
  // Nothing where rows are not packed, or a sequence comes back after another one.
  const std::optional<Packing>& packing();
  void set_packing(PackedSequences ends);  // of a batch of one, without sequences_BS

  const Mask& mask();
  // attend as 0 and -inf; undefined when there is no mask.
  const at::Tensor& additive_mask(at::ScalarType dtype);
  const std::optional<Steps>& steps();
  // r(m,n), int64 [1 or B, T, S].
  const at::Tensor& rows_by_distance(int64_t lo, int64_t hi);

  const Positions positions;
  const at::Tensor given_attend;
  at::Tensor sequences_BS;  // of packed rows
  at::Tensor ends_N;        // of their runs, or undefined
  const TokenWindow window;
  const Kernel kernel;

 private:
  at::Tensor attend_;
  std::optional<std::optional<Packing>> packing_;
  std::optional<Mask> mask_;
  std::map<at::ScalarType, at::Tensor> additive_;
  std::optional<std::optional<Steps>> steps_;
  std::map<std::pair<int64_t, int64_t>, at::Tensor> rows_;
};

}  // namespace rf::nn
