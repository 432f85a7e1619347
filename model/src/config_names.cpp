// The vocabulary of config.json: what transformers 4 and 5 write into the config of a RoFormer, a BERT or a NEZHA,
// sorted by what it does; and the names of architectures.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "names.h"
#include "rf/io/error.h"
#include "rf/io/nearest_name.h"
#include "rf/io/printable.h"

namespace rf {
namespace {

constexpr std::string_view kConfigKeys[] = {"vocab_size",
                                            "embedding_size",
                                            "hidden_size",
                                            "num_hidden_layers",
                                            "num_attention_heads",
                                            "intermediate_size",
                                            "hidden_act",
                                            "hidden_dropout_prob",
                                            "attention_probs_dropout_prob",
                                            "max_position_embeddings",
                                            "type_vocab_size",
                                            "initializer_range",
                                            "layer_norm_eps",
                                            "pad_token_id",
                                            "rotary_value",
                                            "is_decoder",
                                            "prefix_lm",
                                            "add_cross_attention",
                                            "tie_word_embeddings",
                                            "num_labels",
                                            "id2label",
                                            "label2id",
                                            "problem_type",
                                            "summary_type",
                                            "classifier_pooling",
                                            "classifier_activation",
                                            "classifier_dropout",
                                            "architectures",
                                            "model_type",
                                            "family",
                                            "use_bias",
                                            "norm_type",
                                            "position_encoding",
                                            "attention",
                                            "training_positions",
                                            "rope_parameters",
                                            "rope_scaling",
                                            "rope_theta",
                                            "partial_rotary_factor",
                                            "original_max_position_embeddings"};

// About the file: where it came from and in which dtype its parameters were.
constexpr std::string_view kDropped[] = {"_name_or_path", "name_or_path", "_commit_hash", "dtype", "torch_dtype"};

constexpr std::string_view kKept[] = {
    // Which outputs a Python call returns, how it computes the same numbers, and bookkeeping.
    "transformers_version", "return_dict", "output_hidden_states", "output_attentions", "use_cache", "torchscript",
    "tf_legacy_loss", "gradient_checkpointing", "chunk_size_feed_forward", "attn_implementation",
    "_attn_implementation", "_attn_implementation_autoset",
    // Keys of the tokenizer and of task descriptions.
    "bos_token_id", "eos_token_id", "sep_token_id", "tokenizer_class", "prefix", "finetuning_task",
    "task_specific_params",
    // Keys of text generation, which transformers 4 wrote into model configs.
    "decoder_start_token_id", "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
    "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty",
    "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "output_scores",
    "return_dict_in_generate", "forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values",
    "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens",
    // Keys of a pooler with options, which converted Chinese BERT configs carry and no class of transformers reads.
    "directionality", "pooler_activation", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers",
    "pooler_size_per_head", "pooler_type", "summary_proj_to_labels",
    // What a CrossEncoder of sentence-transformers makes of its logits, which tasks/src/cross_encoder_files.cpp reads.
    "sentence_transformers", "sbert_ce_default_activation_function"};

const std::vector<FixedKey>& fixed_keys() {
  static const std::vector<FixedKey> keys = {
      {"is_encoder_decoder", {"false"}, "a model is an encoder or a decoder"},
      {"tie_encoder_decoder", {"false"}, "a model is an encoder or a decoder"},
      {"cross_attention_hidden_size", {"null"}, "encoder states have hidden_size"},
      {"pruned_heads", {"{}", "null"}, "pruned heads are not supported"},
      {"per_layer_config", {"{}", "null"}, "all layers are alike"},
      {"quantization_config", {"null"}, "quantized checkpoints are not supported"},
      {"auto_map", {"null"}, "the model's own Python code is not run"},
      {"use_bfloat16", {"false"}, "it is no longer in transformers"},
      {"position_embedding_type", {"\"absolute\""}, "other encodings are named by position_encoding", Family::kBert},
      {"summary_use_proj", {"false", "null"}, "the summary of multiple choice has no parameters"},
      {"summary_activation", {"null"}, "the summary of multiple choice has no activation"},
      {"summary_first_dropout", {"0", "0.0", "null"}, "the summary of multiple choice has no dropout"},
      {"summary_last_dropout", {"0", "0.0", "null"}, "the summary of multiple choice has no dropout"},
  };
  return keys;
}

struct ActivationName {
  std::string_view name;
  Activation activation;
};
// Of transformers' ACT2FN, those with the formulas that are computed here. The first name of each is the one that is
// written.
constexpr ActivationName kActivations[] = {
    {"gelu", Activation::kGelu},
    {"gelu_new", Activation::kGeluTanh},
    {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"gelu_python", Activation::kGelu},
    {"gelu_fast", Activation::kGeluTanh},
    {"gelu_accurate", Activation::kGeluTanh},
    {"gelu_python_tanh", Activation::kGeluTanh},
    {"relu", Activation::kRelu},
    {"silu", Activation::kSilu},
    {"swish", Activation::kSilu},
    {"tanh", Activation::kTanh},
};

struct FamilyName {
  std::string_view name;
  Family family;
};
constexpr FamilyName kFamilies[] = {
    {"roformer", Family::kRoFormer}, {"bert", Family::kBert}, {"roformer_v2", Family::kRoFormerV2}};

struct HeadName {
  std::string_view end;  // of the class name, after a stem
  Head head;
};
// In the order of Head, so that an entry's index is that of its head, and it is the name that is written.
constexpr HeadName kHeadNames[] = {
    {"Model", Head::kNone},
    {"ForMaskedLM", Head::kMaskedLm},
    {"ForCausalLM", Head::kCausalLm},
    {"ForSequenceClassification", Head::kSequenceClassification},
    {"ForMultipleChoice", Head::kMultipleChoice},
    {"ForTokenClassification", Head::kTokenClassification},
    {"ForQuestionAnswering", Head::kQuestionAnswering},
    {"ForPreTraining", Head::kPreTraining},
};

struct Stem {
  std::string_view name;
  std::vector<Family> families;  // of models that have classes so named
};
const std::vector<Stem>& stems() {
  static const std::vector<Stem> all = {{"RoFormer", {Family::kRoFormer, Family::kRoFormerV2}},
                                        {"Bert", {Family::kBert}},
                                        {"Nezha", {Family::kBert}},
                                        {"RfEncoder", {Family::kRoFormer, Family::kBert, Family::kRoFormerV2}}};
  return all;
}

std::string class_name(std::string_view stem, Head head) {
  if (stem == "Bert" && head == Head::kCausalLm) return "BertLMHeadModel";
  return fmt::format("{}{}", stem, kHeadNames[static_cast<size_t>(head)].end);
}

struct Architecture {
  const Stem* stem;
  Head head;
};
Architecture parse_architecture(const std::string& name) {
  std::string known;
  for (const Stem& stem : stems()) {
    for (const HeadName& entry : kHeadNames) {
      const std::string candidate = class_name(stem.name, entry.head);
      if (candidate == name) {
        return {&stem, entry.head == Head::kPreTraining ? Head::kMaskedLm : entry.head};
      }
      known += fmt::format("{}{}", known.empty() ? "" : ", ", candidate);
    }
  }
  fail("config", "architecture must be one of {}, got {}", known, io::printable(name));
}

}  // namespace

std::string shown(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  constexpr size_t kMaxBytes = 120;
  if (text.size() > kMaxBytes) text = text.substr(0, kMaxBytes) + "...";
  return text;
}

std::optional<Activation> activation_of_name(std::string_view name) {
  for (const ActivationName& entry : kActivations) {
    if (entry.name == name) return entry.activation;
  }
  return std::nullopt;
}

std::string_view name_of_activation(Activation activation) {
  return std::find_if(std::begin(kActivations), std::end(kActivations),
                      [activation](const ActivationName& entry) { return entry.activation == activation; })
      ->name;
}

std::string_view family_name(Family family) {
  for (const FamilyName& entry : kFamilies) {
    if (entry.family == family) return entry.name;
  }
  fail("config", "unknown family, got {}", static_cast<int>(family));
}

std::optional<Family> family_of_name(std::string_view name) {
  for (const FamilyName& entry : kFamilies) {
    if (entry.name == name) return entry.family;
  }
  return std::nullopt;
}

Head head_of_architecture(const std::string& architecture) {
  return parse_architecture(architecture).head;
}

std::string architecture_of(const ModelConfig& config, Head head) {
  const std::string type = model_type(config);
  if (type == "rf_encoder") return class_name("RfEncoder", head);
  return class_name(type == "bert" ? "Bert" : "RoFormer", head);
}

Head ModelConfig::head() const {
  if (architectures.empty()) return Head::kNone;
  if (architectures.size() > 1) {
    fail("config", "architectures must name one class, got {}",
         io::printable(fmt::format("{}", fmt::join(architectures, ", "))));
  }
  const Architecture found = parse_architecture(architectures[0]);
  const std::vector<Family>& families = found.stem->families;
  if (std::find(families.begin(), families.end(), family) == families.end()) {
    fail("config", "architectures must name a class of the model's family, such as {}, got {}",
         architecture_of(*this, found.head), architectures[0]);
  }
  return found.head;
}

std::optional<Harmless> harmless_key(std::string_view key) {
  if (std::find(std::begin(kDropped), std::end(kDropped), key) != std::end(kDropped)) return Harmless::kDropped;
  if (std::find(std::begin(kKept), std::end(kKept), key) != std::end(kKept)) return Harmless::kKept;
  return std::nullopt;
}

const FixedKey* fixed_key(std::string_view key, Family family) {
  for (const FixedKey& entry : fixed_keys()) {
    if (entry.key == key && entry.only.value_or(family) == family) return &entry;
  }
  return nullptr;
}

const std::vector<std::string_view>& config_keys() {
  static const std::vector<std::string_view> keys(std::begin(kConfigKeys), std::end(kConfigKeys));
  return keys;
}

std::string_view nearest_key(std::string_view key, Family family) {
  std::vector<std::string_view> known(std::begin(kConfigKeys), std::end(kConfigKeys));
  known.insert(known.end(), std::begin(kKept), std::end(kKept));
  for (const FixedKey& entry : fixed_keys()) {
    if (entry.only.value_or(family) == family) known.push_back(entry.key);
  }
  return io::nearest_name(key, known);
}

}  // namespace rf
