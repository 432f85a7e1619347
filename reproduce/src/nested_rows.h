// Rows of held-out text that are masked once and read with more and less context: the masked tokens in the middle are
// the same at every length, and so is what is around them, as far as a row reaches.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "rf/nn/model.h"

namespace rf::reproduce {

struct NestedRows {
  at::Tensor ids_BT;     // int64 [rows, longest - 2], text without [CLS] and [SEP], masked
  at::Tensor labels_BT;  // the tokens that are predicted, -100 elsewhere: masked ones that the shortest row has
  int64_t cls = 0, sep = 0;

  // [CLS], the length - 2 tokens in the middle, [SEP]; and the labels of these. length <= longest, both even.
  at::Tensor ids(int64_t length) const;
  at::Tensor labels(int64_t length) const;
};

struct NestedMasking {
  int64_t shortest = 0;       // tokens of the shortest row, with [CLS] and [SEP]; even
  double probability = 0.15;  // that a token is masked, always by [MASK]; independent of the row's length
  uint64_t seed = 1;
  int64_t mask = 0, cls = 0, sep = 0;
};
// text_BT: int64 [rows, longest - 2].
NestedRows nested_rows(const at::Tensor& text_BT, const NestedMasking& masking);

struct MaskedTokens {
  double loss = 0, accuracy = 0;  // means over the labels
  int64_t tokens = 0;
};
// How well a masked language model predicts the labels when it reads rows of that length.
MaskedTokens measure(nn::Model& model, const NestedRows& rows, int64_t length);

}  // namespace rf::reproduce
