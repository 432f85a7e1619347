// Intermediate results of a trained encoder: the input of each layer's attention, and the four terms into which Eq. 6
// of arXiv 2104.09864 divides the first layer's scores. For models made by the trained experiments: embedding_size
// equals hidden_size, learned positions are added to the input.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "rf/nn/model.h"

namespace rf::reproduce {

// The named parameter of a model with a head, without the body's prefix: "embeddings.LayerNorm.weight".
at::Tensor body_parameter(const nn::Model& model, const std::string& name);

// q and k of a layer, [B,H,T,D], before rotation, from the layer's input.
struct QueryKey {
  at::Tensor query_BHTD, key_BHTD;
};
enum class Bias { kNone, kAdded };
QueryKey projected(const nn::Model& model, int64_t layer, const at::Tensor& x_BTC, Bias bias);

// The parts of the first layer's input: a layer norm's output as the sum of a content part, which has the norm's bias,
// and a position part.
struct InputParts {
  at::Tensor content_BTC, position_BTC;
};
InputParts input_parts(const nn::Model& model, const at::Tensor& ids_BT);

// Scores between all tokens of a row, [B,H,T,T], not scaled: their sum is q.k of the first layer.
struct ScoreTerms {
  at::Tensor content_content, content_position, position_content, position_position;
};
ScoreTerms first_layer_terms(const nn::Model& model, const at::Tensor& ids_BT);

// The input of each layer, [B,T,C] each, for a model with RoPE (nothing is added to the input), in evaluation mode.
std::vector<at::Tensor> layer_inputs(const nn::Model& model, const at::Tensor& ids_BT);

// For a causal layer of linear attention, elu or favor: each query's denominator of Eq. 19 divided by its number of
// keys, which is the mean of f(q).g(k) over the keys up to the query's own, [B,H,T]. favor: without the constant that
// it adds to features.
at::Tensor mean_weights(const nn::Model& model, int64_t layer, const at::Tensor& x_BTC);

// Mean of softmax(scores) over rows and pairs of tokens whose key is `offset` after the query (negative: before it),
// for offsets -reach..reach, reach < T: scores [B,H,T,T], scaled -> [H, 2 reach + 1].
at::Tensor attention_by_offset(const at::Tensor& scores_BHTT, int64_t reach);

// [rows, tokens]: consecutive pieces of the held-out documents, from their beginnings, nothing masked.
at::Tensor held_out_rows(const std::string& data_dir, int64_t rows, int64_t tokens);

}  // namespace rf::reproduce
