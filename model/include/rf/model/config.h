// config.json of an encoder (R-HF-02). A key that changes the result but is not supported is an error. Keys that cannot
// change it are listed and kept for writing back. An unknown key is an error in parse_config, and a warning
// (rf/io/warning.h) in a model directory.
//
// model_type tells which programs can open the directory. "roformer" and "bert" are types of transformers, and written
// only for models that transformers computes equally. "roformer_v2" is RoFormerV2, which transformers does not
// implement. Every other combination of position encoding, attention and heads is "rf_encoder". transformers' Auto
// classes refuse the last two. RoFormerV2's PyTorch port (github.com/JunnYu/RoFormer_pytorch) calls it a "roformer"
// with use_bias false and norm_type "rms_norm", which is also read. "nezha" (transformers 4) is read, and written as
// "rf_encoder". A file without model_type, for example a run file, may contain every key of rf_encoder.
//
// Quantized models are refused by name.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rf/model/rotary_rows.h"

namespace rf {

// The model family, which determines heads, default sizes and weight names. The encoders are equal, except for the
// parts that RoFormerV2 omits.
enum class Family {
  kRoFormer,  // names "roformer.*"; embedding_size may differ from hidden_size; no pooler: classification has two
              // layers with hidden_act, multiple choice reads a token of the last hidden state
  kBert,      // names "bert.*"; tanh(dense(first token)), the pooler, under the bare model, sequence classification and
              // multiple choice, which are one layer on it
  kRoFormerV2,  // RoFormer's names and heads. The encoder omits biases and the weights of its RMS norms; the language
                // model's logits are hidden states times word embeddings (kexue.fm/archives/8998, R-VAR-05)
  kDecoder,     // causal models of other libraries (model/src/families); the language model's logits are hidden states
                // times word embeddings or a matrix of their size
};
// "roformer", "bert", "roformer_v2": the key "family". Files of a decoder, "decoder", lack the key.
std::string_view family_name(Family family);

// Heads of spec R-HF-09..13; kHeads has a row for each.
enum class Head {
  kNone,
  kMaskedLm,
  kCausalLm,
  kSequenceClassification,
  kMultipleChoice,
  kTokenClassification,
  kQuestionAnswering,
  kNextSentence,
  kPreTraining,  // a masked language model with a pooler, for every family, followed by a layer of two classes for
                 // pairs of sentences
};

// "RoFormerForMaskedLM" -> Head::kMaskedLm; also "BertForPreTraining", because readers of a finished model do not use
// the layer of pairs. Only training uses Head::kPreTraining. Class names begin with RoFormer, Bert, Nezha or RfEncoder.
// Throws Error for an unknown name.
Head head_of_architecture(const std::string& architecture);

enum class NormKind { kLayer, kRms };  // norm_type "layer_norm" and "rms_norm"

// kGelu is the exact, erf form (R-HF-06); kSquaredRelu is max(x, 0)^2 (So et al. 2021, arXiv 2109.08668).
enum class Activation { kGelu, kGeluTanh, kRelu, kSquaredRelu, kSilu, kTanh };
std::string_view name_of_activation(Activation activation);  // as config.json has it
std::optional<Activation> activation_of_name(std::string_view name);

// How the layers of a model are built, all alike.
struct BlockSpec {
  NormKind norm = NormKind::kLayer;
  bool norm_weight = true, norm_bias = true;
  // Where norms are: x = norm(x + f(x)) as in BERT, or x = x + f(norm(x)) as in Llama.
  bool pre_norm = false;
  bool parallel = false;        // with pre_norm: attention and feed-forward network both read the layer's input (GPT-J)
  bool gated = false;           // down(act(gate(x)) * up(x)) (Shazeer 2020, arXiv 2002.05202); else down(act(up(x)))
  bool query_key_norm = false;  // a norm of each query and key before the rotation (Qwen3)
  // Its weights: shared by all heads, with biases if other norms have them; or separate for each head, without biases,
  // in one tensor (Cohere) or in one tensor per head (StableLM).
  enum class HeadNorm { kShared, kStacked, kApart } head_norm = HeadNorm::kShared;
  bool value_norm = false;            // an RMS norm without weight of each value (Gemma 4)
  bool whole_query_key_norm = false;  // a norm of all queries of a token together, and of all keys (JinaBERT for code)
  bool norm_plus_one = false;         // norms multiply by 1 + weight (Gemma)
  bool post_norm = false;             // with pre_norm: another norm of each part's result, before the sum (Gemma 2)
  bool attention_twice = false;       // without pre_norm: x = norm(x + post_norm(x + attention(x))) (JinaBERT for code)
  bool first_attention_norm = true;   // with pre_norm: layer 0 has a norm before attention (not in ModernBERT)
  bool input_norm = true;             // with pre_norm: whether parts have a norm of their input (OLMo 2: of the result)
  bool shared_norm = false;           // with parallel: both parts read one norm (GPT-J)
  double residual_scale = 1;          // of the result of each part, before the sum (Granite)
  double attention_scale = 0;         // of scores; 0: 1 / sqrt(head_dim())
  double score_cap = 0;               // scores become cap tanh(score / cap) (Gemma 2); 0: none
  bool qkv_bias = true, output_bias = true, mlp_bias = true;
  bool up_bias = true;            // with mlp_bias: gate and up have biases too, not down alone (GTE)
  bool query_value_bias = false;  // biases of queries and of values, two tensors, where qkv_bias is false (DeBERTa)
  // Queries, keys and values are one matrix in the file: all queries, all keys, all values; or the queries, the key and
  // the value of a key head, head by head.
  enum class Fused { kNone, kParts, kHeads } fused_qkv = Fused::kNone;
  // Gate and up are one matrix in the file, in this order.
  enum class FusedGate { kNone, kGateUp, kUpGate } fused_gate = FusedGate::kNone;
  bool transposed = false;  // matrices of layers are [in, out] in the file (GPT-2)
  bool shared = false;      // all layers have the weights of the first
  // A mixture of experts in the layers i with i mod expert_interval = expert_offset: sum_e p_e f_e(x) over the
  // `experts_per_token` greatest p = softmax(router(x)), where f_e is a feed-forward network of `expert_width` columns.
  // 0 experts: none.
  int64_t experts = 0, experts_per_token = 0, expert_interval = 1, expert_offset = 0;
  int64_t expert_width = 0;       // 0: intermediate_size
  bool expert_shares_one = true;  // the p of a token are divided by their sum
  bool expert_bias = false;       // of the router and of the matrices of experts
  // The file has a matrix for each expert; one for all, [experts, out, in]; the same with gate and up in one (Granite);
  // one for all with gate and up in one of columns in turn, [experts, in, out] (gpt-oss), or that as blocks of MXFP4,
  // [experts, out, in / 32, 16]; or the rows of all experts one below the other, with a bias of their sum
  // (nomic-embed-text-v2-moe).
  enum class ExpertFiles { kEach, kStacked, kJoined, kInterleaved, kBlocks, kRows } expert_files = ExpertFiles::kEach;
  // > 0: gates are g sigmoid(expert_slope g) of g at most expert_limit, times 1 + up within it on both sides (gpt-oss).
  double expert_limit = 0, expert_slope = 1.702;
  // With pre_norm, a third part of each layer: x + norm(down(act(gate(x)) * e)), where e is the RMS norm of the layer's
  // own projection of the embeddings, divided by the root of their width, to this many columns (EmbeddingGemma 2). 0:
  // none.
  int64_t layer_input_width = 0;
  // A convolution of the embeddings over this odd number of neighbours, added to the result of the first layer:
  // x = norm(x + act(conv(embeddings))) (DeBERTa v2). 0: none.
  int64_t conv_kernel = 0, conv_groups = 1;
  Activation conv_act = Activation::kTanh;
  bool embedding_norm_last = false;  // embeddings are normed after their projection, which lacks a bias (DeBERTa v2)
  bool layer_scale = false;          // the result of each layer is multiplied by a weight
  bool sinks = false;                // each head's softmax has one more score, a weight, whose value is 0 (gpt-oss)
  bool has_attention_norm(int64_t layer) const { return input_norm && (layer > 0 || first_attention_norm); }
  bool operator==(const BlockSpec&) const = default;
};
BlockSpec block_of(Family family);
// "block": "modernbert" of an rf_encoder: norms before the parts of a layer, gated units, no biases, and a norm at the
// end (Warner et al. 2024, arXiv 2412.13663). Windows are in ModelConfig::layers.
BlockSpec modernbert_block();

// The settings in which layers may differ.
struct LayerSpec {
  int64_t window = 0;  // attention reads tokens at a distance of at most `window`, in causal models < `window`; 0: all
  int rotation = 0;    // of ModelConfig::rotations; -1: none
  int64_t head_dim = 0, key_heads = 0;  // for encoders only; 0: the model's
  bool operator==(const LayerSpec&) const = default;
};

// The layers between the hidden states and the last layer of each head; the defaults are BERT's.
struct HeadSpec {
  enum class Before {
    kNothing,
    kPooler,  // tanh(pooler.dense(first token))
    kDense,   // classifier.norm(activation(classifier.dense(x))); the last layer is classifier.out_proj
  };
  Before sequence = Before::kPooler, choice = Before::kPooler, token = Before::kNothing, answer = Before::kNothing;
  Before next_sentence = Before::kPooler;
  bool bare_pooler = true;                    // the bare model has the pooler, which its files may lack
  std::optional<Activation> activation = {};  // of kDense; absent: hidden_act
  bool dense_bias = true, dense_norm = false, last_bias = true;
  // Dropout of classifiers: before the dense layer (not for choices) and the last layer; before the last one; or none.
  enum class Drops { kBoth, kLast, kNone } drops = Drops::kBoth;
  bool answer_drops = false;  // question answering drops before its layer too
  bool later_names = false;   // cls modules have the last of their names in the family's table (DeBERTa)
  // Language models: nothing before the vocabulary; a dense layer; a dense layer, an activation and a norm; two dense
  // layers, the first of `transform_width` columns, and an activation after each.
  enum class Transform { kNone, kProjection, kFull, kTwoDense } transform = Transform::kFull;
  int64_t transform_width = 0;
  bool transform_bias = true;
  std::optional<Activation> transform_activation = {};  // absent: hidden_act
  // The bias over the vocabulary: none; cls.predictions.bias, which a tied decoder shares; the decoder's alone.
  enum class VocabularyBias { kNone, kShared, kOfDecoder } vocabulary_bias = VocabularyBias::kShared;
  bool pretraining_predicts = true;  // ..ForPreTraining is a masked language model, besides
  double logit_scale = 1;            // of logits over the vocabulary
  double logit_cap = 0;              // they become cap tanh(logit / cap) (Gemma 2); 0: none
  bool operator==(const HeadSpec&) const = default;
};

// A head, from which head_stages() and head_outputs() of weights.h follow.
struct HeadRow {
  static constexpr int64_t kVocabulary = -1, kLabels = -2;
  Head head;
  std::string_view suffix;  // of its classes in transformers
  enum class Reads {
    kTokens,    // each token
    kSequence,  // a vector of each sequence, by classifier_pooling
    kChoice,    // a vector of each choice
  } reads = Reads::kTokens;
  int64_t columns = 0;                           // of its logits, vocab_size or num_labels; 0: none
  HeadSpec::Before HeadSpec::*before = nullptr;  // layers before the last one; nullptr: HeadSpec::transform
  std::string_view last = "";  // the last layer, where `before` is given; after kDense, classifier is .out_proj of it
  bool dropout = false;        // before the last layer; of kChoice only after other layers
  bool are_ends = false;       // the columns are two results, start and end
};
inline constexpr HeadRow kHeads[] = {
    {Head::kNone, "Model"},
    {Head::kMaskedLm, "ForMaskedLM", HeadRow::Reads::kTokens, HeadRow::kVocabulary},
    {Head::kCausalLm, "ForCausalLM", HeadRow::Reads::kTokens, HeadRow::kVocabulary},
    {Head::kSequenceClassification, "ForSequenceClassification", HeadRow::Reads::kSequence, HeadRow::kLabels,
     &HeadSpec::sequence, "classifier", true},
    {Head::kMultipleChoice, "ForMultipleChoice", HeadRow::Reads::kChoice, 1, &HeadSpec::choice, "classifier", true},
    {Head::kTokenClassification, "ForTokenClassification", HeadRow::Reads::kTokens, HeadRow::kLabels, &HeadSpec::token,
     "classifier", true},
    {Head::kQuestionAnswering, "ForQuestionAnswering", HeadRow::Reads::kTokens, 2, &HeadSpec::answer, "qa_outputs",
     false, true},
    {Head::kNextSentence, "ForNextSentencePrediction", HeadRow::Reads::kSequence, 2, &HeadSpec::next_sentence,
     "cls.seq_relationship"},
    {Head::kPreTraining, "ForPreTraining", HeadRow::Reads::kTokens, HeadRow::kVocabulary},
};
constexpr const HeadRow& row_of(Head head) { return kHeads[static_cast<size_t>(head)]; }
constexpr bool is_language_model(Head head) { return row_of(head).columns == HeadRow::kVocabulary; }
constexpr bool reads_tokens(Head head) { return row_of(head).reads == HeadRow::Reads::kTokens; }

// Positions of an encoder of another library without rotation.
struct PositionSpec {
  bool learned = false;     // a trained vector for each position is added to the embeddings
  int64_t first_row = 0;    // of that table, which position 0 reads
  int64_t padding_id = -1;  // tokens of this id read the row of this number, and do not count; -1: all count
  enum class Relative {
    kNone,
    kBuckets,       // T5's bias by bucket of the distance, of each head, for all layers (arXiv 1910.10683)
    kDisentangled,  // DeBERTa's rows by distance for queries and keys (arXiv 2006.03654)
    kLinear,        // ALiBi's penalty of each head by distance (arXiv 2108.12409)
  } relative = Relative::kNone;
  // Of kLinear. Causal models add slope times position of the key, which is the same after the softmax.
  bool falcon_slopes = false;                  // slopes and products are rounded to bfloat16, then scaled as scores are
  static constexpr int64_t kBucketsRead = 32;  // of kBuckets, by every class, even if the table has more rows
  int64_t rows = 0;                            // of the trained table
  int64_t buckets = 0, max_distance = 0;       // kDisentangled; buckets 0: a row for each distance
  bool content_to_position = false, position_to_content = false;
  bool shared_projections = false;  // rows are projected as queries and keys are
  bool relative_norm = false;       // rows are normed before
  bool operator==(const PositionSpec&) const = default;
};

// "training_positions": how positions are drawn in training, so that a model sees positions of longer texts. Outside
// training, a model reads the given positions.
struct TrainingPositions {
  enum class Kind {
    kGiven,       // not drawn
    kRandomized,  // {"type": "randomized", "max_positions": L}: a sequence of n positions gets n of 0 .. L-1, in order
                  // (Ruoss et al. 2023, arXiv 2305.16843)
    kShifted,     // {"type": "shifted", "max_shift": K}: a sequence is shifted by one of 0 .. K (SHAPE, Kiyono et al.
                  // 2021, arXiv 2109.05644)
    kAugmented,   // {"type": "augmented", "max_global_shift": G, "max_local_shift": E, "max_global_scaling": S}: a
                  // sequence's positions p become real numbers a (p + g + e), g in -G .. G and ln a in -ln S .. ln S
                  // for each sequence, e in -E .. E for each token (CAPE, Likhomanenko et al. 2021, arXiv 2106.03143).
                  // Only with `sinusoidal`
  } kind = Kind::kGiven;
  int64_t most = 0;                                              // L or K
  double global_shift = 0, local_shift = 0, global_scaling = 1;  // G, E, S
  bool operator==(const TrainingPositions&) const = default;
};

// The position encoding and the attention of a model: a name, and keys that only the named encoding or attention
// interprets.
// "position_encoding": {"type": "shaw", "max_relative_position": 16}, or "position_encoding": "shaw".
struct EncodingConfig {
  std::string type = "rope";
  std::string options = "{}";  // JSON object with the keys besides type, sorted, without spaces
  bool operator==(const EncodingConfig&) const = default;
};

// "attention": {"type": "linear", "feature_map": "elu"}, or "attention": "softmax".
struct AttentionConfig {
  std::string type = "softmax";
  std::string options = "{}";
  bool operator==(const AttentionConfig&) const = default;
};

// The settings of the decoder in an encoder-decoder (translation_config.h).
struct DecoderSide {
  int64_t layers = 6, heads = 8, intermediate_size = 2048;
  int64_t eos_token_id = 1, start_token_id = 1;  // start: the decoder reads it before the first token
  bool operator==(const DecoderSide&) const = default;
};

// Low-rank changes of a file's matrices for each task (LoRA, Hu et al. 2021, arXiv 2106.09685): W + scale B A.
struct AdapterSpec {
  struct Adapter {
    std::string task, prompt;  // prompt: before texts
    bool operator==(const Adapter&) const = default;
  };
  std::vector<Adapter> tasks;  // in the order of the tensors' first dimension
  int64_t rank = 0;
  double scale = 1;
  bool operator==(const AdapterSpec&) const = default;
};

// The JSON of a file with all its keys; the other members of a ModelConfig hold their meaning.
struct ForeignConfig {
  std::string text;
  bool operator==(const ForeignConfig&) const { return true; }
};

// Defaults are as in transformers' RoFormerConfig; for the family kBert, parse_config uses the defaults of BertConfig.
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
  int64_t num_key_value_heads = 0;  // 0: num_attention_heads (grouped keys, Ainslie et al. 2023, arXiv 2305.13245)
  int64_t head_size = 0;            // 0: hidden_size / num_attention_heads
  int64_t intermediate_size = 3072;
  Activation hidden_act = Activation::kGelu;
  double hidden_dropout_prob = 0.1;
  double attention_probs_dropout_prob = 0.1;
  int64_t max_position_embeddings = 1536;  // rows of tables by position; limits the input length if they are trained
  int64_t type_vocab_size = 2;             // 0: no token types
  BlockSpec block = {};
  double embedding_scale = 1;  // of word embeddings, before other embeddings are added
  // Word embeddings of this token are 0; a text's other word embeddings are divided by their share of its tokens
  // (ESM-2). -1: none.
  int64_t dropped_id = -1;
  bool embedding_norm = true, final_norm = false;
  int64_t output_size = 0;        // of a projection of the last hidden states, which heads read; 0: none
  bool equal_projection = false;  // embeddings of hidden_size are projected as narrower ones are (ALBERT)
  double initializer_range = 0.02;
  double layer_norm_eps = 1e-12;
  int64_t pad_token_id = 0;   // null is treated as absent
  bool rotary_value = false;  // values are rotated like keys
  bool is_decoder = false;
  // A prefix language model (UniLM, arXiv 1905.03197; SimBERT, RoFormer-Sim), with is_decoder: the tokens of type 0 at
  // the start of a sequence see each other, and later tokens see all tokens before them. The bare model and the causal
  // language model then have a pooler, dense(first token) without activation, which gives the vector of a sentence.
  bool prefix_lm = false;
  bool add_cross_attention = false;
  std::optional<DecoderSide> decoder;  // of an encoder-decoder, whose encoder the other members describe
  bool tie_word_embeddings = true;
  int64_t num_labels = 2;
  std::map<int64_t, std::string> id2label;  // empty: LABEL_0, LABEL_1, ...
  std::string problem_type;                 // "", regression, single_label_classification, multi_label_classification
  std::string summary_type = "last";        // multiple choice: last or first
  // Sequence classification reads the first token; "mean": the mean; "last", of other libraries alone: the last token.
  std::string classifier_pooling = "cls";
  std::string classifier_activation;         // "" (hidden_act), or hidden_act's name: transformers supports only this
  std::optional<double> classifier_dropout;  // absent: hidden_dropout_prob
  std::vector<std::string> architectures;
  std::map<std::string, std::string> kept;  // harmless keys as read (key -> JSON text), written back by to_json

  // ---- Of a model of another library (model/src/families); empty otherwise.
  std::string foreign_type;               // its model_type, or the general.architecture of its GGUF file
  ForeignConfig foreign_config;           // its config.json, which to_json() writes back with the keys that may change
  std::vector<RotarySettings> rotations;  // of a decoder, or where layers differ, in place of position_encodings
  std::vector<LayerSpec> layers;          // one for each layer; empty: all have rotation 0 and no window
  std::vector<int64_t> dense_layers;      // without experts, where other layers have them
  PositionSpec positions;                 // in place of the rotations
  int64_t task_vocab_size = 0;            // rows of a table, whose first is added to all embeddings; 0: none
  HeadSpec heads;
  std::optional<AdapterSpec> adapters;
  std::vector<int32_t> stop_ids;      // tokens that end a text
  std::vector<std::string> problems;  // contradictions between files, one sentence each

  bool is_foreign() const { return !foreign_type.empty(); }

  bool is_causal() const { return is_decoder && !prefix_lm; }  // tokens do not see later tokens
  int64_t head_dim() const { return head_size > 0 ? head_size : hidden_size / num_attention_heads; }
  bool projects_embeddings() const { return equal_projection || embedding_size != hidden_size; }
  int64_t embedding_norm_size() const { return block.embedding_norm_last ? hidden_size : embedding_size; }
  int64_t key_heads() const { return num_key_value_heads > 0 ? num_key_value_heads : num_attention_heads; }
  int64_t query_width() const { return num_attention_heads * head_dim(); }
  int64_t key_width() const { return key_heads() * head_dim(); }
  // The sizes of one layer.
  int64_t head_dim(int64_t layer) const { return own(&LayerSpec::head_dim, layer, head_dim()); }
  int64_t key_heads(int64_t layer) const { return own(&LayerSpec::key_heads, layer, key_heads()); }
  int64_t query_width(int64_t layer) const { return num_attention_heads * head_dim(layer); }
  int64_t key_width(int64_t layer) const { return key_heads(layer) * head_dim(layer); }
  int64_t output_width() const { return output_size > 0 ? output_size : hidden_size; }
  bool has_experts(int64_t layer) const {
    return block.experts > 0 && layer % block.expert_interval == block.expert_offset &&
           std::ranges::find(dense_layers, layer) == dense_layers.end();
  }
  int64_t expert_columns() const { return block.expert_width > 0 ? block.expert_width : intermediate_size; }
  // Head named by `architectures`; kNone when the list is empty. Throws Error for another family's class.
  Head head() const;
  bool operator==(const ModelConfig&) const = default;

 private:
  int64_t own(int64_t LayerSpec::*size, int64_t layer, int64_t common) const {
    const int64_t given = layers.empty() ? 0 : layers[static_cast<size_t>(layer)].*size;
    return given > 0 ? given : common;
  }
};

// "roformer", "bert", "roformer_v2" or "rf_encoder", and "marian" or "rf_translation", as written by to_json; the
// foreign_type of another library's model.
std::string model_type(const ModelConfig& config);
// The class name, for example "BertForMaskedLM". Never a class of transformers for an rf_encoder.
std::string architecture_of(const ModelConfig& config, Head head);

// Throws Error naming the key and its value: unknown key, wrong type, hidden_size not divisible by heads, sizes out of
// range, a model_type with a key that transformers would not honour. Missing keys get their default; a missing
// embedding_size is hidden_size. Top-level rope_parameters, rope_scaling, rope_theta, partial_rotary_factor and
// original_max_position_embeddings are options of the only position encoding. An id2label of LABEL_0, LABEL_1, ... is
// read as empty. The dtype keys are dropped: parameters are read in their file's dtypes, and written as float32. Names
// and options of encodings are checked when a model is created.
ModelConfig parse_config(const nlohmann::json& json);
ModelConfig load_config(const std::string& model_dir);

// Keys as transformers writes them; parse_config(to_json(c)) == c. Throws Error if parse_config would refuse the
// result.
nlohmann::json to_json(const ModelConfig& config);
void save_config(const ModelConfig& config, const std::string& model_dir);

}  // namespace rf
