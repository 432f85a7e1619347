// The tokens of one forward pass: where they are, and which of them may be attended to (R-CONV-11, R-HF-08).
#pragma once

#include "rf/nn/attention.h"
#include "rf/nn/cache.h"
#include "rf/nn/model.h"
#include "rf/nn/positions.h"

namespace rf::nn {

struct Tokens {
  Positions positions;      // queries: the new tokens; keys: those of the cache and the new ones
  at::Tensor key_mask_BS;   // bool; padding is false; undefined: none, or sequences_BS says so
  at::Tensor sequences_BS;  // of packed rows, else undefined
  at::Tensor ends_N;        // of their runs (Input::ends_N), where they are known
};

// Positions default to 0, 1, .., and go on after those of the cache, which takes the new tokens up.
Tokens make_tokens(const Input& input, KeyValueCache* cache);

// Queries attend to keys of their sequence that are not padding, within the window.
AttentionContext self_attention_context(const Tokens& tokens, TokenWindow window);
// Every query attends to every encoder state that the mask allows; nothing depends on where they are.
AttentionContext cross_attention_context(int64_t queries, int64_t keys, const at::Tensor& mask_BS);

}  // namespace rf::nn
