// Creates the position encoding and the attention of a model from its configuration, and lists the tensors that they
// add to a checkpoint.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rf/model/config.h"
#include "rf/model/weights.h"
#include "rf/nn/encoding.h"
#include "rf/nn/linear_attention.h"

namespace rf::nn {

// Throws Error if the configuration, the encoding and the attention do not fit (make_encoding, check_linear_attention),
// and for rotary_value without a rotation or with linear attention.
std::shared_ptr<Encoding> make_position_encoding(const ModelConfig& config);

// Rotation by a checkpoint's stored sin|cos table if it differs from the computed one (for example,
// encoder.embed_positions.weight rounded to 16 bits), as in transformers. A position beyond its rows is an error.
// table_MD: [rows, D], sin in the first half of a row and cos in the second, for pairs (2i, 2i+1).
std::shared_ptr<Encoding> make_stored_rotation(const at::Tensor& table_MD);

// One per layer; empty for softmax attention.
std::vector<std::shared_ptr<LinearAttention>> make_linear_attention(const ModelConfig& config);

// Those of the configuration, or of a model of another library whose positions are described otherwise.
std::vector<EncodingConfig> encodings_of(const ModelConfig& config);

// Whether the model has the trained positions of a BERT under transformers' name.
bool has_berts_positions(const ModelConfig& config);

// Tensors of the encoding by their names in the model, and in weight_specs(): of a model of another library whose
// encoding has trained tables by distance.
std::vector<std::pair<std::string, std::string>> renamed_tensors(const ModelConfig& config, Head head,
                                                                 const Encoding& encoding);

// The weights that model/weights.h lists; the encoding's tensors, under kEncodingPrefix unless transformers has a name
// for them; and the buffers of linear attention, under kLinearAttentionPrefix and the layer.
std::vector<WeightSpec> model_weight_specs(const ModelConfig& config, Head head, const Encoding& encoding,
                                           const std::vector<std::shared_ptr<LinearAttention>>& linear);

}  // namespace rf::nn
