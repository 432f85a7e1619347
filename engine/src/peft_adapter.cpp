// An adapter of PEFT, docs/embeddings.md: W + scale * B A, where scale is lora_alpha / r, or lora_alpha / sqrt(r) with
// use_rslora (arXiv:2312.03732).
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "adapters.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/printable.h"
#include "weights.h"

namespace rf::engine {

namespace {

// Keys that say how an adapter was made, or that its tensors say as well. Others must be off.
constexpr std::string_view kHarmless =
    " auto_mapping base_model_name_or_path bias eva_config exclude_modules fan_in_fan_out inference_mode "
    "init_lora_weights layers_pattern layers_to_transform lora_alpha lora_dropout megatron_core modules_to_save "
    "peft_type peft_version qalora_group_size r rank_pattern revision runtime_config target_modules task_type "
    "use_rslora ";
constexpr std::string_view kBaseModel = "base_model.model.";
constexpr double kMaxAlpha = 1e6;
// The names of the two factors, for a linear layer and for an embedding.
struct Factors {
  std::string_view down, up;
};
constexpr Factors kFactors[] = {{".lora_A.weight", ".lora_B.weight"}, {".lora_embedding_A", ".lora_embedding_B"}};

struct LoraScale {
  double alpha = 0;
  bool is_root = false;
  double of(int64_t rank) const {
    return alpha / (is_root ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank));
  }
};

bool is_off(const nlohmann::json& value) {
  return value.is_null() || value == false || value == 0 || value == "" || (value.is_structured() && value.empty());
}

[[noreturn]] void refuse(const std::string& path, std::string_view key, std::string_view rule,
                         const nlohmann::json& value) {
  fail(path, "{} must be {}, got {}", key, rule, io::shown(value));
}

LoraScale read_scale(const std::string& path) {
  const nlohmann::json config = io::read_json(path);
  if (!config.is_object()) fail(path, "must be a JSON object, got {}", config.type_name());
  const auto value = [&](const char* key) { return config.value(key, nlohmann::json()); };
  if (value("peft_type") != "LORA") refuse(path, "peft_type", "\"LORA\"", value("peft_type"));
  for (const auto& [key, given] : config.items()) {
    if (kHarmless.find(" " + key + " ") == std::string_view::npos && !is_off(given))
      refuse(path, key, "absent or off for plain LoRA", given);
  }
  const nlohmann::json start = value("init_lora_weights"), alpha = value("lora_alpha"), root = value("use_rslora");
  const bool keeps_base =
      start.is_null() || start.is_boolean() || start == "gaussian" || start == "eva" || start == "orthogonal";
  if (!keeps_base) refuse(path, "init_lora_weights", "one that leaves the model's weights as they are", start);
  if (!alpha.is_number() || std::abs(alpha.get<double>()) > kMaxAlpha)
    refuse(path, "lora_alpha", "a number up to 1e6", alpha);
  if (!root.is_null() && !root.is_boolean()) refuse(path, "use_rslora", "true or false", root);
  return {alpha.get<double>(), root == true};
}

}  // namespace

struct Adapters::Folder {
  Adapters& to;
  const std::string path;  // of the tensors
  const bool ties;         // the embeddings are the output matrix
  const int64_t vocab_size;

  // The class that was adapted may have a prefix that the model's file lacks, or the reverse.
  const NamedShape* find(const std::string& name) const {
    const NamedShape* found = nullptr;
    for (const NamedShape& each : to.shapes_) {
      if (each.name == name) return &each;
      if (!each.name.ends_with("." + name) && !name.ends_with("." + each.name)) continue;
      if (found != nullptr) fail(path, "{} must be one tensor of the model, got two", io::printable(name));
      found = &each;
    }
    return found;
  }

  std::string target(const std::string& name, const std::vector<int64_t>& shape) const {
    const NamedShape* const found = find(name);
    if (found == nullptr) fail(path, "an adapter must change tensors of the model, got {}", io::printable(name));
    if (found->shape != shape) {
      fail(path, "{} must have the shape [{}] of the model, got [{}]", io::printable(name),
           fmt::join(found->shape, ", "), fmt::join(shape, ", "));
    }
    if (ties && !shape.empty() && shape[0] == vocab_size)
      fail(path, "embeddings that are also the output matrix must be left as they are, got {}", io::printable(name));
    return found->name;
  }

  void replace(std::string name, const io::TensorView& view, bool is_bare) const {
    if (name.find(".original_module.") != std::string::npos) return;  // that of the model
    for (const std::string_view part : {".base_layer", ".modules_to_save"}) {
      if (const size_t at = name.find(part); at != std::string::npos) name.erase(at, part.size());
    }
    if (!is_bare || find(name) != nullptr) {
      name = target(name, view.shape);
    } else {
      to.shapes_.push_back({name, view.shape});  // of a head, which is ignored
    }
    to.views_.insert_or_assign(name, &view);
  }

  void change(const std::string& module, const io::TensorView& down, const io::TensorView* up, bool of_rows,
              const LoraScale& scale) const {
    const bool fits = up != nullptr && up->shape.size() == 2 && down.shape.size() == 2 && down.shape[0] > 0 &&
                      down.shape[0] == up->shape[1];
    if (!fits) fail(path, "{} must have two factors of one rank, got others", io::printable(module));
    const int64_t rank = down.shape[0], inputs = down.shape[1], outputs = up->shape[0];
    const std::string name = target(
        module + ".weight", of_rows ? std::vector<int64_t>{inputs, outputs} : std::vector<int64_t>{outputs, inputs});
    std::vector<float> left = adapter_values(*up, 0, outputs * rank), right = adapter_values(down, 0, rank * inputs);
    for (float& each : left) each = static_cast<float>(each * scale.of(rank));
    if (of_rows) {
      left = transposed(left, outputs);
      right = transposed(right, rank);
      left.swap(right);
    }
    to.changes_[name] = {.rank = rank, .left = std::move(left), .right = std::move(right)};
  }
};

void Adapters::add_folder(const ModelConfig& config, Head head, const std::string& folder) {
  const LoraScale scale = read_scale(fmt::format("{}/{}", folder, kAdapterConfigFile));
  const Folder adapter{.to = *this,
                       .path = fmt::format("{}/{}", folder, kAdapterWeightsFile),
                       .ties = is_language_model(head) && config.tie_word_embeddings,
                       .vocab_size = config.vocab_size};
  saved_.emplace(adapter.path);
  for (const io::TensorView& view : saved_->tensors()) {
    if (!view.name.starts_with(kBaseModel))
      fail(adapter.path, "names must begin with {}, got {}", kBaseModel, io::printable(view.name));
    const std::string name = view.name.substr(kBaseModel.size());
    const auto ends = [&](const Factors& each) { return name.ends_with(each.down) || name.ends_with(each.up); };
    const auto* const factors = std::ranges::find_if(kFactors, ends);
    if (factors == std::end(kFactors)) {
      if (name.find(".lora_") != std::string::npos)
        fail(adapter.path, "an adapter must be plain LoRA, got {}", io::printable(name));
      adapter.replace(name, view, head == Head::kNone);
    } else {
      const std::string module = name.substr(0, name.rfind(".lora_"));
      const io::TensorView* const down = saved_->find(fmt::format("{}{}{}", kBaseModel, module, factors->down));
      if (down == nullptr) fail(adapter.path, "{} must have two factors of one rank, got one", io::printable(module));
      const io::TensorView* const up = saved_->find(fmt::format("{}{}{}", kBaseModel, module, factors->up));
      if (down == &view) adapter.change(module, view, up, factors == kFactors + 1, scale);
    }
  }
  if (changes_.empty() && views_.empty()) fail(adapter.path, "an adapter must have tensors, got none");
}

}  // namespace rf::engine
