// The tokens of one forward pass: their positions, and which tokens may be attended to (R-CONV-11, R-HF-08).
#pragma once

#include "rf/nn/attention.h"
#include "rf/nn/cache.h"
#include "rf/nn/model.h"
#include "rf/nn/positions.h"

namespace rf::nn {

struct Tokens {
  Positions positions;      // queries: the new tokens; keys: cached and new tokens
  at::Tensor key_mask_BS;   // bool; padding is false; undefined: no padding, or marked in sequences_BS
  at::Tensor sequences_BS;  // of packed rows, else undefined
  at::Tensor ends_N;        // of their runs (Input::ends_N), if known
};

// Positions default to 0, 1, .., and continue after the cache; the new tokens are appended to the cache.
Tokens make_tokens(const Input& input, KeyValueCache* cache);

// Queries attend to the keys of their sequence that are not padding and inside the window.
AttentionContext self_attention_context(const Tokens& tokens, TokenWindow window);
// Every query attends to every encoder state that the mask allows, regardless of position.
AttentionContext cross_attention_context(int64_t queries, int64_t keys, const at::Tensor& mask_BS);

}  // namespace rf::nn
