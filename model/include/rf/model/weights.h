// Names, shapes and roles of an encoder checkpoint's tensors (spec R-HF-03), shared by all readers and writers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rf/model/config.h"

namespace rf {

// Elements of a block of MXFP4, which have one scale (OCP Microscaling Formats 1.0).
inline constexpr int64_t kMxfp4Block = 32;

enum class WeightRole {
  kMatrix,        // starts as initial_values() defines; weight decay
  kEmbedding,     // the same; the pad row of word_embeddings starts at 0
  kBias,          // starts at 0, no decay
  kNormGain,      // starts at 1, no decay
  kNormBias,      // starts at 0, no decay
  kEncoding,      // parameter of a position encoding, which initialises it; decays if it has two or more dimensions
  kEncodingBias,  // added by an encoding to scores, queries or keys, or multiplied with scores; initialised by the
                  // encoding, no decay
  kTable,         // encoder.embed_positions.weight: the frozen sin|cos table, not trained
  kBuffer,        // untrained state of the attention, for example random features
};
// Whether weight decay applies.
bool decays(WeightRole role, size_t dimensions);
// kEncodingBias if the parameter of an encoding is called "gate" or its name ends in "bias", otherwise kEncoding.
WeightRole encoding_role(const std::string& name);
inline bool is_of_encoding(WeightRole role) {
  return role == WeightRole::kEncoding || role == WeightRole::kEncodingBias;
}

struct WeightSpec {
  std::string name;  // as transformers names it in the task model, for example "roformer.embeddings.LayerNorm.weight"
  std::vector<int64_t> shape;
  WeightRole role;
  bool transposed = false;  // the file has a matrix of the other order
};

// All tensors that transformers 5, or RoFormerV2's port, writes for this head, in the order of the model's definition;
// bare names (without "roformer." or "bert.") for Head::kNone. Only position encodings that transformers supports are
// included: a roformer's frozen table and a bert's trained one. With tie_word_embeddings, the tied decoder tensors
// (cls.predictions.decoder.*) are omitted. Without it, both cls.predictions.bias and cls.predictions.decoder.bias are
// stored, and transformers uses only the latter.
std::vector<WeightSpec> weight_specs(const ModelConfig& config, Head head);

// How the family of the model builds heads.
HeadSpec head_spec(const ModelConfig& config);

// The part of a sequence's hidden states that a head reads: the model's HeadRow::reads.
enum class HeadReads {
  kTokens,
  kFirstToken,
  kLastToken,   // multiple choice of RoFormer, padding or not (R-HF-12); classification with classifier_pooling last
  kMean,        // of the tokens that may be attended to
  kMeanLogits,  // classifier_pooling late: the result is the mean of the logits of tokens
};
HeadReads head_reads(const ModelConfig& config, Head head);

// A product of a head, and what follows it.
struct HeadStage {
  std::string linear;  // the name of its weights
  int64_t outputs = 0, inputs = 0;
  bool bias = true;
  std::optional<Activation> activation = {};
  std::string norm = {};  // "": none
  bool dropout = false;   // of its input, in training
};
// The layers from a head's input to its logits. The first may be the pooler; a language model's last is the vocabulary.
std::vector<HeadStage> head_stages(const ModelConfig& config, Head head);
std::string pooler_name(const ModelConfig& config, Head head);
// Whether the list includes the pooler, a layer on the first token.
bool has_pooler(const ModelConfig& config, Head head);

// Results of a forward pass by their names, in order, and their extents: "batch", "choices", "rows" (of
// all choices), "tokens" or a number.
struct HeadOutput {
  std::string name;
  std::vector<std::string> extents;
};
std::vector<HeadOutput> head_outputs(const ModelConfig& config, Head head);

// Whether the list includes encoder.embed_positions.weight: for roformer and roformer_v2.
bool has_position_table(const ModelConfig& config);

// The initial standard deviation of a matrix or an embedding, and whether values beyond two deviations are drawn again.
// RoFormerV2 follows bert4keras: 1.13684723 / sqrt(n L) for L layers, which is 1 / sqrt(n L) after truncation. For a
// matrix, n is the number of inputs. For embeddings [V, E], n is E if V > 10000 or V < 10, otherwise V.
inline constexpr double kTruncation = 1.13684723;  // 1 over the deviation of N(0, 1) truncated to -2 .. 2
struct InitialValues {
  double deviation = 0;
  bool truncated = false;
};
InitialValues initial_values(const ModelConfig& config, const WeightSpec& spec);

// Prefix of the encoder's tensors in a model with a head, "roformer." or "bert."; without a head "".
std::string body_prefix(const ModelConfig& config);
std::string encoder_prefix(const ModelConfig& config, Head head);

// Prefixes of tensors outside that list: of a position encoding, and of the buffers of linear attention.
inline constexpr const char* kEncodingPrefix = "position_encoding.";
inline constexpr const char* kLinearAttentionPrefix = "linear_attention.";
bool is_added_name(const std::string& name);

// The layer of two classes of Head::kPreTraining, as transformers names it in BertForPreTraining.
inline constexpr const char* kPairLayer = "cls.seq_relationship";

// A bert's trained position table, without the prefix.
inline constexpr const char* kLearnedPositions = "embeddings.position_embeddings.weight";
bool has_learned_positions(const ModelConfig& config);
// Trained rows by distance (PositionSpec), and their norm.
inline constexpr const char* kTaskTypes = "embeddings.task_type_embeddings.weight";
inline constexpr const char* kRelativeBias = "encoder.relative_attention_bias.weight";
inline constexpr const char* kRelativeRows = "encoder.rel_embeddings.weight";
inline constexpr const char* kRelativeNorm = "encoder.LayerNorm";

// The projections of the embeddings to each layer's own input, one below the other, and their norm (BlockSpec); the
// projection of the last hidden states.
inline constexpr const char* kLayerInputs = "encoder.layer_inputs";
inline constexpr const char* kLayerInputNorm = "encoder.layer_input_norm";
inline constexpr const char* kOutputProjection = "encoder.output_projection";
// The convolution of the embeddings, with .conv and .LayerNorm (BlockSpec::conv_kernel).
inline constexpr const char* kConvolution = "encoder.conv";

// The name of a listed tensor in files of the model, and the listed name of a tensor in a file. They differ only for
// models of other libraries (model/src/families); both functions return other names unchanged.
std::string file_name(const ModelConfig& config, Head head, const std::string& name);
std::string name_in_model(const ModelConfig& config, Head head, const std::string& name);

// The block of the model's files, which join matrices that are separate in training (foreign_models.h).
BlockSpec block_in_files(const ModelConfig& config);

// The tensor that a tied decoder tensor copies: cls.predictions.decoder.weight ->
// <prefix>embeddings.word_embeddings.weight, cls.predictions.decoder.bias -> cls.predictions.bias. Empty for other
// names.
std::string tied_source(const ModelConfig& config, const std::string& name);

// The half-layout sinusoid stored in encoder.embed_positions.weight [rows, dim] (R-ABS-04): row m is sin(m t_0), ...,
// sin(m t_{dim/2-1}), cos(m t_0), ..., with t_i = 10000^(-2i/dim); computed in double, rounded once. dim must be even.
std::vector<float> position_table(int64_t rows, int64_t dim);
// The warning of a loader whose checkpoint contains a table [rows, dim] that differs from the computed one by more than
// 1e-6; the stored table is then used, as in transformers. nullopt for the computed table.
std::optional<std::string> stored_table_warning(const std::string& model_dir, std::span<const double> stored,
                                                int64_t dim);

// Matches a checkpoint's tensor names with the model's: which spec each file tensor fills, which specs may be missing
// (the position table), and which file tensors are ignored (tied copies, a projection if E == D, an unused pooler, a
// layer of pairs, stored indices, computed tables, and the head of another task if the bare encoder is requested or a
// fresh head is allowed). Prefixes are added and removed, "nezha." is read as "bert.", and a layer norm's old names
// gamma and beta as weight and bias. Throws Error on a missing or unexpected tensor, and on a wrong shape, with both
// shapes.
struct NamedShape {
  std::string name;
  std::vector<int64_t> shape;
};
struct WeightMatch {
  std::vector<std::string> load;                   // tensors to copy: names of the specs
  std::map<std::string, std::string> names;        // of each loaded tensor: in the model -> in the file
  std::vector<std::string> computed;               // names of specs absent from the file that are computed instead
  std::map<std::string, std::string> tied_copies;  // the same of tensors that the file has besides their tied_source
  std::vector<std::string> ignored;                // names in the file: present, harmless, not used
  std::vector<std::string> fresh;  // names of specs: the head, if it is missing from the file and may be
};
enum class FreshHead { kForbidden, kAllowed };
WeightMatch match_weights(const ModelConfig& config, Head head, const std::vector<NamedShape>& file,
                          FreshHead fresh_head, const std::vector<WeightSpec>& specs);
// Against weight_specs(config, head).
WeightMatch match_weights(const ModelConfig& config, Head head, const std::vector<NamedShape>& file,
                          FreshHead fresh_head);

}  // namespace rf
