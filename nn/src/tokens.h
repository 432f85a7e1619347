// The tokens of one forward pass: checks of the input, positions drawn in training, the positions of queries and keys,
// and which tokens may be attended to (R-CONV-11, R-HF-08).
#pragma once

#include "rf/nn/attention.h"
#include "rf/nn/model.h"
#include "rf/nn/positions.h"

namespace rf::nn {

// The input with positions, segments, their ends and the mask on the CPU (devices.h).
Input with_layout_on_cpu(Input input);

// Throws Error for wrong shapes and dtypes; ids, types and masks out of range (with the value and its place); empty
// input; negative positions; segments together with a mask; encoder states without cross-attention or the reverse.
// dtype: of keys and values. kept_tokens: that a cache of Python has, with the encoder states; in C++ 0.
void check_input(const Input& input, const ModelConfig& config, at::ScalarType dtype, int64_t kept_tokens = 0);

// The same, and the rule of num_choices.
void check_call(const Input& input, const ModelConfig& config, Head head, at::ScalarType dtype, int64_t num_choices,
                int64_t kept_tokens = 0);

// Returns the input with drawn positions, one draw per sequence: a row, or a run of equal segments. They depend on the
// given positions and on one stream of the key. Throws Error for positions on several axes, and for a sequence with
// more positions than there are to draw from.
Input with_training_positions(const Input& input, const TrainingPositions& how, DropoutKey& key);

struct Tokens {
  Positions positions;
  at::Tensor key_mask_BS;      // bool, on the device of the ids; padding is false; undefined: no padding, or marked in
                               // sequence_ids_BS
  at::Tensor sequence_ids_BS;  // of packed rows, else undefined
};

// Positions default to 0, 1, ..; tokens of `padding_id` do not count, and have position -1 (padding_id -1: all count).
Tokens make_tokens(const Input& input, int64_t padding_id = -1);

// Word embeddings of ModelConfig::dropped_id become 0, and others are divided by their share of the tokens of a
// sequence.
at::Tensor with_dropped(const at::Tensor& words_BTE, const Input& input, int64_t dropped_id);

// Queries attend to the keys of their sequence that are not padding and inside the window.
AttentionContext self_attention_context(const Tokens& tokens, TokenWindow window);
// Every query attends to every encoder state that the mask allows, regardless of position.
AttentionContext cross_attention_context(const at::Tensor& ids_BT, int64_t keys, const at::Tensor& mask_BS);

}  // namespace rf::nn
