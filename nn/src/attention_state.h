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
  at::Tensor attend;      // bool, broadcasts to [B,H,T,S]; every row has a key: rows without one are opened here ...
  at::Tensor alive_BTH1;  // ... and their outputs are 0: false here, [B or 1, T, H or 1, 1]; undefined: none
};

struct AttentionContext::State {
  State(Positions positions, at::Tensor attend, TokenWindow window, Kernel kernel);

  int64_t queries() const { return positions.query.ids.size(1); }
  int64_t keys() const { return positions.key.ids.size(1); }

  const Mask& mask();
  // attend as 0 and -inf; undefined when there is no mask.
  const at::Tensor& additive_mask(at::ScalarType dtype);
  const std::optional<Steps>& steps();
  // r(m,n), int64 [1 or B, T, S].
  const at::Tensor& rows_by_distance(int64_t lo, int64_t hi);
  // Lowest and highest position of queries and keys; {0, 0} without any.
  std::pair<int64_t, int64_t> range();

  const Positions positions;
  const at::Tensor attend;
  const TokenWindow window;
  const Kernel kernel;

 private:
  std::optional<Mask> mask_;
  std::map<at::ScalarType, at::Tensor> additive_;
  std::optional<std::optional<Steps>> steps_;
  std::map<std::pair<int64_t, int64_t>, at::Tensor> rows_;
  std::optional<std::pair<int64_t, int64_t>> range_;
};

}  // namespace rf::nn
