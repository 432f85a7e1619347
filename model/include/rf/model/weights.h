// Names, shapes and roles of an encoder checkpoint's tensors (spec R-HF-03), described once for every reader and
// writer.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rf/model/config.h"

namespace rf {

enum class WeightRole {
  kMatrix,        // starts as initial_values() says, weight decay
  kEmbedding,     // the same; the pad row of word_embeddings starts at 0
  kBias,          // starts at 0, no decay
  kNormGain,      // starts at 1, no decay
  kNormBias,      // starts at 0, no decay
  kEncoding,      // a position encoding's, which initialises it; decays when it has two dimensions or more
  kEncodingBias,  // what an encoding adds to scores, queries or keys, or multiplies scores by; initialised by it, no
                  // decay
  kTable,         // encoder.embed_positions.weight: the frozen sin|cos table, not trained
  kBuffer,        // state of the attention that is not trained, for example random features
};
// Whether weight decay applies.
bool decays(WeightRole role, size_t dimensions);
// kEncodingBias where the parameter of an encoding is called "gate" or its name ends in "bias", otherwise kEncoding.
WeightRole encoding_role(const std::string& name);

struct WeightSpec {
  std::string name;  // as transformers names it in the task model, for example "roformer.embeddings.LayerNorm.weight"
  std::vector<int64_t> shape;
  WeightRole role;
};

// All tensors that transformers 5, or RoFormerV2's port, writes for this head, in order of the model's definition; bare
// names (without "roformer." or "bert.") for Head::kNone. Position encodings are there only as far as transformers has
// a name for them: a roformer's frozen table and a bert's trained one. The tied decoder tensors
// (cls.predictions.decoder.*) are not among them when tie_word_embeddings is true. When it is false,
// cls.predictions.bias is stored as well as cls.predictions.decoder.bias, and transformers computes with the latter
// only.
std::vector<WeightSpec> weight_specs(const ModelConfig& config, Head head);

// Whether pooler.dense is among them: a vector of the first token.
bool has_pooler(const ModelConfig& config, Head head);
// Whether encoder.embed_positions.weight is among them: of a roformer and of a roformer_v2.
bool has_position_table(const ModelConfig& config);

// The standard deviation with which a matrix or an embedding starts, and whether values beyond two of it are drawn
// again. RoFormerV2's is bert4keras': 1.13684723 / sqrt(n L) for L layers, truncated, whose deviation is 1 / sqrt(n L);
// n is a matrix's number of inputs, and of embeddings [V, E] their width E where V > 10000 or V < 10, otherwise V.
inline constexpr double kTruncation = 1.13684723;  // over the deviation of N(0, 1) between -2 and 2
struct InitialValues {
  double deviation = 0;
  bool truncated = false;
};
InitialValues initial_values(const ModelConfig& config, const WeightSpec& spec);

// What the names of the encoder's tensors begin with in a model with a head: "roformer." or "bert.".
std::string body_prefix(const ModelConfig& config);

// What the names of tensors begin with that are not in that list: those of a position encoding, and the buffers of
// linear attention.
inline constexpr const char* kEncodingPrefix = "position_encoding.";
inline constexpr const char* kLinearAttentionPrefix = "linear_attention.";
bool is_added_name(const std::string& name);

// The layer of two classes of Head::kPreTraining, as transformers names it in BertForPreTraining.
inline constexpr const char* kPairLayer = "cls.seq_relationship";

// A bert's trained position table, without the prefix.
inline constexpr const char* kLearnedPositions = "embeddings.position_embeddings.weight";

// The tensor that a tied decoder tensor copies: cls.predictions.decoder.weight ->
// <prefix>embeddings.word_embeddings.weight, cls.predictions.decoder.bias -> cls.predictions.bias. Empty for every
// other name.
std::string tied_source(const ModelConfig& config, const std::string& name);

// The half-layout sinusoid that encoder.embed_positions.weight [rows, dim] holds (R-ABS-04): row m is sin(m t_0), ...,
// sin(m t_{dim/2-1}), cos(m t_0), ..., with t_i = 10000^(-2i/dim); computed in double, rounded once. dim must be even.
std::vector<float> position_table(int64_t rows, int64_t dim);
// The warning of a loader that found another table than that in a checkpoint, which is then used as transformers does:
// one whose [rows, dim] numbers differ by more than 1e-6. nullopt for the computed table.
std::optional<std::string> stored_table_warning(const std::string& model_dir, std::span<const double> stored,
                                                int64_t dim);

// A checkpoint's tensor names sorted out against the model's: which spec each file tensor fills, which specs may be
// left out (the position table), which file tensors are ignored (tied copies, a projection where E == D, a pooler that
// no head uses, a layer of pairs, stored indices, computed tables, the head of another task when the bare encoder
// is asked for or a fresh head is allowed). Prefixes are added and removed, "nezha." is read as "bert.", and a layer
// norm's old names gamma and beta as weight and bias. Throws Error on a missing or unexpected tensor, and on a wrong
// shape, with both shapes.
struct NamedShape {
  std::string name;
  std::vector<int64_t> shape;
};
struct WeightMatch {
  std::vector<std::string> load;             // tensors to copy: names of the specs
  std::map<std::string, std::string> names;  // of each loaded tensor: in the model -> in the file
  std::vector<std::string> computed;         // names of specs absent from the file that are computed instead
  std::vector<std::string> tied_copies;      // names in the file: present although tied, beside their tied_source
  std::vector<std::string> ignored;          // names in the file: present, harmless, not used
  std::vector<std::string> fresh;            // names of specs: the head when it is absent from the file and may be
};
enum class FreshHead { kForbidden, kAllowed };
WeightMatch match_weights(const ModelConfig& config, Head head, const std::vector<NamedShape>& file,
                          FreshHead fresh_head, const std::vector<WeightSpec>& specs);
// Against weight_specs(config, head).
WeightMatch match_weights(const ModelConfig& config, Head head, const std::vector<NamedShape>& file,
                          FreshHead fresh_head);

}  // namespace rf
