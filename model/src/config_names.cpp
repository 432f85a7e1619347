// The names in config.json: activations, families and architectures.
#include <algorithm>

#include "names.h"
#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "rf/model/model_types.h"
#include "rf/model/weights.h"

namespace rf {
namespace {

template <typename Value>
struct Named {
  std::string_view name;
  Value value;
};

template <typename Value, size_t N>
std::optional<Value> value_of(const Named<Value> (&table)[N], std::string_view name) {
  const auto* const found = std::ranges::find(table, name, &Named<Value>::name);
  return found == std::end(table) ? std::nullopt : std::optional(found->value);
}

// The first name of a value.
template <typename Value, size_t N>
std::string_view name_of(const Named<Value> (&table)[N], Value value) {
  return std::ranges::find(table, value, &Named<Value>::value)->name;
}

// The activations in transformers' ACT2FN whose formulas are computed here. Files are written with the first name of
// each.
constexpr Named<Activation> kActivations[] = {
    {"gelu", Activation::kGelu},
    {"gelu_new", Activation::kGeluTanh},
    {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"gelu_python", Activation::kGelu},
    {"gelu_fast", Activation::kGeluTanh},
    {"gelu_accurate", Activation::kGeluTanh},
    {"gelu_python_tanh", Activation::kGeluTanh},
    {"relu", Activation::kRelu},
    {"relu2", Activation::kSquaredRelu},
    {"silu", Activation::kSilu},
    {"swish", Activation::kSilu},
    {"tanh", Activation::kTanh},
};

constexpr Named<Family> kFamilyNames[] = {
    {"roformer", Family::kRoFormer}, {"bert", Family::kBert}, {"roformer_v2", Family::kRoFormerV2}};

struct Stem {
  std::string_view name;
  std::vector<Family> families;  // of models that have classes so named
};
const std::vector<Stem>& stems() {
  static const std::vector<Stem> all = [] {
    std::vector<Stem> known = {{"RoFormer", {Family::kRoFormer, Family::kRoFormerV2}},
                               {"Bert", {Family::kBert}},
                               {"Nezha", {Family::kBert}},
                               {"RfEncoder", {Family::kRoFormer, Family::kBert, Family::kRoFormerV2}}};
    for (const auto& [classes, heads] : foreign_classes()) known.push_back({classes, {heads}});
    return known;
  }();
  return all;
}

std::string class_name(std::string_view stem, Head head) {
  if (stem == "Bert" && head == Head::kCausalLm) return "BertLMHeadModel";
  if (stem == "NeoBERT" && head == Head::kNone) return "NeoBERT";
  if (stem == "NeoBERT" && head == Head::kMaskedLm) return "NeoBERTLMHead";
  return fmt::format("{}{}", stem, row_of(head).suffix);
}

struct Architecture {
  const Stem* stem;
  Head head;
};
Architecture parse_architecture(const std::string& name) {
  for (const Stem& stem : stems()) {
    for (const HeadRow& row : kHeads) {
      if (class_name(stem.name, row.head) == name)
        return {&stem, row.head == Head::kPreTraining ? Head::kMaskedLm : row.head};
    }
  }
  const auto names = [](const auto& all, auto member) {
    std::vector<std::string_view> listed;
    for (const auto& each : all) {
      if (std::ranges::find(listed, each.*member) == listed.end()) listed.push_back(each.*member);
    }
    return fmt::format("{}", fmt::join(listed, ", "));
  };
  fail("config",
       "architecture must be a class as RoFormerForMaskedLM: one of {}, then one of {}; or BertLMHeadModel, got {}",
       names(stems(), &Stem::name), names(kHeads, &HeadRow::suffix), io::printable(name));
}

}  // namespace

std::optional<Activation> activation_of_name(std::string_view name) { return value_of(kActivations, name); }
std::string_view name_of_activation(Activation activation) { return name_of(kActivations, activation); }
std::string_view family_name(Family family) {
  return family == Family::kDecoder ? "decoder" : name_of(kFamilyNames, family);
}
std::optional<Family> family_of_name(std::string_view name) { return value_of(kFamilyNames, name); }

BlockSpec block_of(Family family) {
  if (family != Family::kRoFormerV2) return {};
  return {.norm = NormKind::kRms,
          .norm_weight = false,
          .norm_bias = false,
          .qkv_bias = false,
          .output_bias = false,
          .mlp_bias = false};
}

BlockSpec modernbert_block() {
  return {.norm_bias = false,
          .pre_norm = true,
          .gated = true,
          .first_attention_norm = false,
          .qkv_bias = false,
          .output_bias = false,
          .mlp_bias = false};
}

std::vector<std::string_view> encoder_types() {
  std::vector<std::string_view> types;
  for (const auto& family : kFamilyNames) types.push_back(family.name);
  types.insert(types.end(), {"nezha", "rf_encoder"});
  const std::vector<std::string_view> foreign = foreign_types(Family::kBert);
  types.insert(types.end(), foreign.begin(), foreign.end());
  return types;
}

Head head_of_architecture(const std::string& architecture) { return parse_architecture(architecture).head; }

std::string architecture_of(const ModelConfig& config, Head head) {
  if (config.is_foreign()) return class_name(foreign_class(config, head), head);
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
  if (!head_spec(*this).pretraining_predicts && architectures[0].ends_with("ForPreTraining")) {
    fail("config", "architectures must name a head that is computed, such as {}, got {}",
         architecture_of(*this, Head::kSequenceClassification), architectures[0]);
  }
  return found.head;
}

}  // namespace rf
