// The vocabulary of config.json: what transformers 4 and 5 write into the config of a RoFormer, a BERT or a NEZHA,
// sorted by what it does; and the names of architectures.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "names.h"
#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "rf/model/model_types.h"

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

const std::vector<FixedKey>& fixed_keys() {
  static const std::vector<FixedKey> keys = {
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

std::vector<std::string_view> encoder_types() {
  std::vector<std::string_view> types;
  for (const FamilyName& entry : kFamilies) types.push_back(entry.name);
  types.insert(types.end(), {"nezha", "rf_encoder"});
  return types;
}

Head head_of_architecture(const std::string& architecture) { return parse_architecture(architecture).head; }

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

const FixedKey* fixed_key(std::string_view key) {
  for (const FixedKey& entry : fixed_keys()) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

const std::vector<std::string_view>& config_keys() {
  static const std::vector<std::string_view> keys(std::begin(kConfigKeys), std::end(kConfigKeys));
  return keys;
}

}  // namespace rf
