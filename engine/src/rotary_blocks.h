// The blocks of a rotary decoder on rows of activations: norms before attention and the feed-forward network, whose
// results are added to the residual stream (rf/model/rotary_decoder.h has both equations).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "decoder_weights.h"
#include "encoder_input.h"
#include "layers.h"

namespace rf::engine {

class RotaryBlocks {
 public:
  // largest_inputs: of each layer, measured, for int8; else of that many empty ones.
  RotaryBlocks(const DecoderWeights& weights, Precision precision, const std::vector<LayerInputs>& largest_inputs);

  // The normalised hidden states of all tokens, as Encoder::forward.
  void* forward(const EncoderInput& input, Workspace& work, const Attend& attend) const;

 private:
  struct Layer {
    Norm attention_norm, feed_forward_norm;
    Linear qkv, attention_output;
    Linear up, down;  // up: with gate before it, [gate; up], in kLlama
  };
  void feed_forward(const Layer& layer, int64_t tokens, const void* x, void* wide, void* y) const;

  DecoderConfig config_;
  rf_dtype dtype_;
  ReadRow words_;
  std::vector<Layer> layers_;
  Norm final_norm_;
};

// Logits of the last hidden states.
Linear read_decoder_head(const DecoderWeights& weights, Precision precision);

}  // namespace rf::engine
