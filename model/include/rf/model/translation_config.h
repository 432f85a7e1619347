// config.json of an encoder-decoder for translation (Vaswani et al. 2017; post-LN). It has the keys of transformers'
// MarianConfig, and "position_encoding", which both self-attentions use; cross-attention does not use positions.
//
// model_type says who else can open the directory: "marian" if transformers' MarianMTModel computes the same, with the
// sinusoids of Marian ({"type": "sinusoidal", "layout": "half"}). With every other position encoding it is
// "rf_translation", which transformers does not know. Both use Marian's tensor names.
//
// One vocabulary serves both languages, and one matrix is the source embedding, the target embedding and the output
// layer (Vaswani et al. 2017 section 3.4). Checkpoints with several such matrices are refused.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "rf/model/config.h"
#include "rf/model/weights.h"

namespace rf {

// Transformer-base (Vaswani et al. 2017 Table 3).
ModelConfig translation_defaults();

// Throws Error naming the key and its value: an unknown key, a wrong type, a size out of range, a setting that this
// model does not have (several embeddings, dropout within the feed-forward layers). Missing keys take the default; in a
// file of model_type marian, whose defaults are others, the sizes must be there. The result has a `decoder`; to_json()
// writes it, and parse_translation_config(to_json(c)) == c.
ModelConfig parse_translation_config(const nlohmann::json& json);
ModelConfig load_translation_config(const std::string& model_dir);

// A side as the configuration of a body with its encoding and, of the decoder, causal and cross-attention.
enum class TranslationSide { kEncoder, kDecoder };
ModelConfig side_of(const ModelConfig& config, TranslationSide side);

inline constexpr const char* kSharedEmbedding = "model.shared.weight";
inline constexpr const char* kOutputBias = "final_logits_bias";  // [1, V], not trained

// All tensors except the position encodings', with the names and shapes of transformers' MarianMTModel.
std::vector<WeightSpec> translation_weight_specs(const ModelConfig& config);
// Where a tensor of a body lies: "encoder.layer.0.attention.self.query.weight" of the encoder is
// "model.encoder.layers.0.self_attn.q_proj.weight".
struct BodyName {
  std::string in_body, in_file;
};
std::vector<BodyName> body_names(const ModelConfig& config, TranslationSide side);

}  // namespace rf
