// config.json of an encoder (R-HF-02). A key that changes the result and that this program does not honour is an error;
// keys that cannot change it are listed and kept for writing back; a key that nobody knows is an error in what
// parse_config reads, and a warning (rf/io/warning.h) in a model directory.
//
// model_type says who else can open the directory. "roformer" and "bert" are transformers' own, and written only for
// what transformers computes alike; "roformer_v2" is RoFormerV2, of which transformers has no class; every other
// combination of position encoding, attention and heads is "rf_encoder". transformers' Auto classes refuse both.
// RoFormerV2's PyTorch port (github.com/JunnYu/RoFormer_pytorch) calls it a "roformer" with use_bias false and
// norm_type "rms_norm", which is read too. "nezha" (transformers 4) is read, and written as "rf_encoder". A file
// without model_type, as in a run file, may have every key of rf_encoder.
//
// Does not read quantized models: they are refused by name.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rf/model/encoding_config.h"

namespace rf {

// Whose heads, default sizes and weight names a model has. The encoder is the same but for what RoFormerV2 leaves out.
enum class Family {
  kRoFormer,  // names "roformer.*"; embedding_size may differ from hidden_size; no pooler: classification has two
              // layers with hidden_act, multiple choice reads a token of the last hidden state
  kBert,      // names "bert.*"; tanh(dense(first token)), the pooler, under the bare model, sequence classification and
              // multiple choice, which are one layer on it
  kRoFormerV2,  // RoFormer's names and heads. The encoder has no biases, and RMS norms without weights; the language
                // model's logits are hidden states times word embeddings (kexue.fm/archives/8998, R-VAR-05)
};
// "roformer", "bert", "roformer_v2": the key "family".
std::string_view family_name(Family family);

// Heads of spec R-HF-09..13, named by the ends of their transformers classes.
enum class Head {
  kNone,                    // ..Model
  kMaskedLm,                // ..ForMaskedLM, and ..ForPreTraining without its pooler and its layer of pairs
  kCausalLm,                // ..ForCausalLM; BertLMHeadModel
  kSequenceClassification,  // ..ForSequenceClassification
  kMultipleChoice,          // ..ForMultipleChoice
  kTokenClassification,     // ..ForTokenClassification
  kQuestionAnswering,       // ..ForQuestionAnswering
  kPreTraining,             // ..ForPreTraining: a masked language model with a pooler, whatever the family, and a layer
                            // of two classes on it, of pairs of sentences
};

// "RoFormerForMaskedLM" -> Head::kMaskedLm, and so is "BertForPreTraining", since what reads a finished model has no
// use for the layer of pairs; only training asks for Head::kPreTraining. Class names begin with RoFormer, Bert, Nezha
// or RfEncoder. Throws Error on an unknown one.
Head head_of_architecture(const std::string& architecture);

enum class NormKind { kLayer, kRms };  // norm_type "layer_norm", and "rms_norm", which has no weights

enum class Activation { kGelu, kGeluTanh, kRelu, kSilu, kTanh };  // kGelu is the exact, erf form (R-HF-06)

// "training_positions": how positions are drawn in training, so that a model meets those of longer texts. Elsewhere a
// model reads the positions that it is given.
struct TrainingPositions {
  enum class Kind {
    kGiven,       // they are not
    kRandomized,  // {"type": "randomized", "max_positions": L}: a sequence of n positions has n of 0 .. L-1, in order
                  // (Ruoss et al. 2023, arXiv 2305.16843)
    kShifted,     // {"type": "shifted", "max_shift": K}: all of a sequence moved by one of 0 .. K (SHAPE, Kiyono et al.
                  // 2021, arXiv 2109.05644)
    kAugmented,   // {"type": "augmented", "max_global_shift": G, "max_local_shift": E, "max_global_scaling": S}: a
                  // sequence's positions p become real numbers a (p + g + e), g in -G .. G and ln a in -ln S .. ln S of
                  // the sequence, e in -E .. E of each token (CAPE, Likhomanenko et al. 2021, arXiv 2106.03143). With
                  // `sinusoidal` alone
  } kind = Kind::kGiven;
  int64_t most = 0;                                              // L or K
  double global_shift = 0, local_shift = 0, global_scaling = 1;  // G, E, S
  bool operator==(const TrainingPositions&) const = default;
};

// Defaults are those of transformers' RoFormerConfig; parse_config takes those of BertConfig for the family kBert.
struct ModelConfig {
  Family family = Family::kRoFormer;
  std::vector<EncodingConfig> position_encodings = {EncodingConfig{}};  // their terms are combined
  AttentionConfig attention;
  TrainingPositions training_positions;
  int64_t vocab_size = 50000;
  int64_t embedding_size = 768;  // "embedding_size": null means hidden_size
  int64_t hidden_size = 768;
  int64_t num_hidden_layers = 12;
  int64_t num_attention_heads = 12;
  int64_t intermediate_size = 3072;
  Activation hidden_act = Activation::kGelu;
  double hidden_dropout_prob = 0.1;
  double attention_probs_dropout_prob = 0.1;
  int64_t max_position_embeddings = 1536;  // rows of tables by position; a limit on inputs where those are trained
  int64_t type_vocab_size = 2;
  double initializer_range = 0.02;
  double layer_norm_eps = 1e-12;
  int64_t pad_token_id = 0;   // null reads as absent
  bool rotary_value = false;  // values are rotated as keys are
  bool is_decoder = false;
  // A prefix language model (UniLM, arXiv 1905.03197; SimBERT, RoFormer-Sim), with is_decoder: the tokens of type 0 at
  // the start of a sequence see each other, those after them what is before them. The bare model and the causal
  // language model have a pooler then, dense(first token) without activation, whose vectors are those of sentences.
  bool prefix_lm = false;
  bool add_cross_attention = false;
  bool tie_word_embeddings = true;
  int64_t num_labels = 2;
  std::map<int64_t, std::string> id2label;   // empty: LABEL_0, LABEL_1, ...
  std::string problem_type;                  // "", regression, single_label_classification, multi_label_classification
  std::string summary_type = "last";         // multiple choice: last or first
  std::string classifier_pooling = "cls";    // sequence classification reads the first token, or the mean: "mean"
  std::string classifier_activation;         // "" (hidden_act), or hidden_act's name: transformers has no other
  std::optional<double> classifier_dropout;  // absent: hidden_dropout_prob
  std::vector<std::string> architectures;
  std::map<std::string, std::string> kept;  // harmless keys as read (key -> JSON text), written back by to_json

  NormKind norm_kind() const { return family == Family::kRoFormerV2 ? NormKind::kRms : NormKind::kLayer; }
  // Whether the encoder and the language model's head have biases; the heads of tasks have.
  bool use_bias() const { return family != Family::kRoFormerV2; }
  bool is_causal() const { return is_decoder && !prefix_lm; }  // no token sees one behind it
  int64_t head_dim() const { return hidden_size / num_attention_heads; }
  // Head named by `architectures`; kNone when the list is empty. Throws Error for a class of another family.
  Head head() const;
  bool operator==(const ModelConfig&) const = default;
};

// "roformer", "bert", "roformer_v2" or "rf_encoder": what to_json writes.
std::string model_type(const ModelConfig& config);
// The class name, for example "BertForMaskedLM". Never one of transformers' for an rf_encoder.
std::string architecture_of(const ModelConfig& config, Head head);

// Throws Error naming the key and its value: unknown key, wrong type, hidden_size not divisible by heads, sizes out of
// range, a model_type with a key that transformers would not honour. Missing keys take the default; a missing
// embedding_size is hidden_size. rope_parameters, rope_scaling, rope_theta, partial_rotary_factor and
// original_max_position_embeddings at the top are options of the one position encoding, which reads them. id2label that
// only says LABEL_0, LABEL_1, ... is read as empty. The dtype keys are dropped: parameters are read by their file's
// dtypes, and written as float32. The names and options of encodings are checked where models are made.
ModelConfig parse_config(const nlohmann::json& json);
ModelConfig load_config(const std::string& model_dir);

// Keys as transformers writes them; parse_config(to_json(c)) == c. Throws Error where parse_config would refuse the
// result.
nlohmann::json to_json(const ModelConfig& config);
void save_config(const ModelConfig& config, const std::string& model_dir);

}  // namespace rf
