// Matches the tensors of a checkpoint with a model's (R-HF-03). The rules:
//   a  encoder.embed_positions.weight may be absent (converted checkpoints): computed instead
//   b  cls.predictions.decoder.* may be present although tied: a copy to compare, or a replacement for the original
//   c  embeddings_project.* may be present although E == C: ignored; so is a pooler that the head does not use,
//      and additional tensors stored by other versions
//   d  every other difference of names or shapes is an error
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "families/family.h"
#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "rf/model/weights.h"

namespace rf {
namespace {

constexpr std::string_view kBodyModules[] = {"embeddings.", "embeddings_project.", "encoder.", "pooler."};
constexpr std::string_view kHeadModules[] = {"cls.",
                                             "classifier.",
                                             "qa_outputs.",
                                             "lm_head.",
                                             "pre_classifier.",
                                             "vocab_",
                                             "head.",
                                             "score.",
                                             "lm_predictions.",
                                             "mask_predictions",
                                             "discriminator_predictions",
                                             "generator_",
                                             "predictions.",
                                             "sop_classifier.",
                                             "sequence_summary.",
                                             "decoder.",
                                             "linear."};  // the projection of ColBERT
// Tensors that programs store but are not weights: indices, and tables of computed encodings.
constexpr std::string_view kIgnoredEnds[] = {"embeddings.position_ids",
                                             "embeddings.token_type_ids",
                                             "encoder.embed_positions.weight",
                                             "self.relative_positions_encoding.positions_encoding",
                                             ".rotary_emb.inv_freq",
                                             "rotary_embeddings.inv_freq",
                                             ".attention.bias",
                                             ".attention.masked_bias",
                                             ".attn.bias",
                                             ".attn.masked_bias"};
constexpr std::string_view kContacts = "contact_head.";  // of proteins, from the attention probabilities (ESM)
// Parts of multimodal models that read images and sound.
constexpr std::string_view kOtherMedia[] = {"vision_tower.", "embed_vision.", "audio_tower.", "embed_audio."};

template <size_t N>
bool starts_with_any(std::string_view name, const std::string_view (&modules)[N]) {
  return std::any_of(std::begin(modules), std::end(modules), [name](auto module) { return name.starts_with(module); });
}

std::string shown(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::vector<std::string_view> file_prefixes(Family family) {
  if (family == Family::kBert) return {"bert.", "nezha."};
  return {"roformer."};
}

// A layer norm's names before transformers renamed them.
std::string current_name(std::string name) {
  constexpr std::pair<std::string_view, std::string_view> kRenamed[] = {{"LayerNorm.gamma", "LayerNorm.weight"},
                                                                        {"LayerNorm.beta", "LayerNorm.bias"}};
  for (const auto& [old, now] : kRenamed) {
    if (name.ends_with(old)) return name.substr(0, name.size() - old.size()) + std::string(now);
  }
  return name;
}

// In the names of modules whose class in transformers renames them in its files.
constexpr std::string_view kModulesOfTransformers[] = {".mlp.down_proj.", ".mlp.fc1.", ".experts.gate_up_proj"};

class Matcher {
 public:
  Matcher(const ModelConfig& config, Head head, const std::vector<NamedShape>& file, FreshHead fresh_head,
          const std::vector<WeightSpec>& specs)
      : config_(config),
        head_(head),
        file_(file),
        fresh_head_(fresh_head),
        specs_(specs),
        prefix_(encoder_prefix(config, head)) {
    for (const WeightSpec& spec : specs_) by_name_.emplace(spec.name, &spec);
  }

  WeightMatch run() {
    choose_prefix();
    for (const NamedShape& tensor : file_) place(tensor);
    take_copies_for_sources();
    find_missing();
    // Loading follows the order of the model, not of the file.
    for (const WeightSpec& spec : specs_) {
      if (match_.names.contains(spec.name)) match_.load.push_back(spec.name);
    }
    return std::move(match_);
  }

 private:
  // If a file has bare and prefixed names, they stay unchanged: one of the two kinds then remains unmatched.
  void choose_prefix() {
    const auto any = [this](const auto& predicate) { return std::any_of(file_.begin(), file_.end(), predicate); };
    file_prefix_ = prefix_;
    const bool bare = any([](const NamedShape& tensor) { return starts_with_any(tensor.name, kBodyModules); });
    for (const std::string_view prefix : file_prefixes(config_.family)) {
      if (!any([prefix](const NamedShape& tensor) { return tensor.name.starts_with(prefix); })) continue;
      if (!bare) file_prefix_ = prefix;
      return;
    }
    if (bare) file_prefix_ = "";
  }

  // The name in the model for a tensor of the file.
  std::string model_name(const std::string& name) const {
    if (config_.is_foreign()) return name_in_model(config_, head_, current_name(name));
    if (file_prefix_ == prefix_ || !name.starts_with(file_prefix_)) return current_name(name);
    const std::string body = name.substr(file_prefix_.size());
    return current_name(starts_with_any(body, kBodyModules) ? prefix_ + body : name);
  }

  void place(const NamedShape& tensor) {
    const std::string name = model_name(tensor.name);
    if (!seen_.insert(name).second)
      fail("weights", "tensor names must be unique, got {} twice", io::printable(tensor.name));
    if (const auto found = by_name_.find(name); found != by_name_.end()) {
      const std::vector<int64_t>& shape = found->second->shape;
      check_shape(tensor, found->second->transposed ? std::vector(shape.rbegin(), shape.rend()) : shape);
      match_.names.emplace(name, tensor.name);
    } else if (is_tied_copy(name)) {
      check_shape(tensor, by_name_.at(tied_source(config_, name))->shape);
      match_.tied_copies.emplace(name, tensor.name);
    } else if (is_ignored(name)) {
      match_.ignored.push_back(tensor.name);
    } else {
      fail("weights", "tensors must be those of {}, got {} of shape {}{}", architecture_of(config_, head_),
           io::printable(tensor.name), shown(tensor.shape), hint(name));
    }
  }

  static void check_shape(const NamedShape& tensor, const std::vector<int64_t>& expected) {
    if (tensor.shape != expected) {
      fail("weights", "{} must have the shape {} by the config, got {}", io::printable(tensor.name), shown(expected),
           shown(tensor.shape));
    }
  }

  // Untied decoder tensors are in the specs and are not handled here.
  bool is_tied_copy(const std::string& name) const {
    return is_language_model(head_) && !tied_source(config_, name).empty();
  }

  bool is_ignored(const std::string& name) const {
    const std::string body = name.starts_with(prefix_) ? name.substr(prefix_.size()) : name;
    if (body == "embeddings_project.weight" || body == "embeddings_project.bias") return !config_.projects_embeddings();
    if (body == "pooler.dense.weight" || body == "pooler.dense.bias") return true;         // or a spec
    if (name.starts_with(kPairLayer) || name.starts_with("sop_classifier.")) return true;  // or a spec
    // Files of DeBERTa keep what its class does not read.
    const bool has_rows = config_.positions.relative != PositionSpec::Relative::kNone;
    if (config_.is_foreign() && !has_rows && body.starts_with(kRelativeNorm)) return true;
    if (config_.is_foreign() && !family_of(config_).outer_type.empty() && starts_with_any(name, kOtherMedia))
      return true;
    if (config_.foreign_type.starts_with("esm") && body.starts_with(kContacts)) return true;
    if (name.starts_with("mask_predictions.") || (config_.is_foreign() && body == kLearnedPositions)) return true;
    if (std::any_of(std::begin(kIgnoredEnds), std::end(kIgnoredEnds), [&](auto end) { return name.ends_with(end); }))
      return true;
    return (head_ == Head::kNone || fresh_head_ == FreshHead::kAllowed) && starts_with_any(name, kHeadModules);
  }

  std::string hint(const std::string& name) const {
    if (starts_with_any(name, kHeadModules))
      return "; the file holds another head: load that head or none, or allow a fresh one";
    bool has_modules = false;
    for (const NamedShape& tensor : file_) {
      const auto is_part = [&](std::string_view part) { return tensor.name.find(part) != std::string::npos; };
      if (std::ranges::none_of(kModulesOfTransformers, is_part)) continue;
      if (by_name_.contains(model_name(tensor.name))) return "";  // the name of the file's own format
      has_modules = true;
    }
    return has_modules ? "; a model that transformers saved with save_original_format=False must be saved without it"
                       : "";
  }

  // A pooler follows the encoder; files of heads that do not use it omit it.
  bool is_of_head(const WeightSpec& spec) const {
    return starts_with_any(spec.name, kHeadModules) || spec.name.starts_with(prefix_ + "pooler.");
  }

  // Layers for a whole sequence, which are missing in a model trained without pairs: the pooler of a prefix language
  // model, and the pooler of pretraining with its layer of pairs.
  bool is_of_sentences(const WeightSpec& spec) const {
    if (head_ != Head::kPreTraining && !config_.prefix_lm) return false;
    return spec.name.starts_with(prefix_ + "pooler.") || spec.name.starts_with(kPairLayer);
  }

  // Rule b: one tensor under either name.
  void take_copies_for_sources() {
    std::erase_if(match_.tied_copies, [&](const auto& copy) {
      return match_.names.emplace(tied_source(config_, copy.first), copy.second).second;
    });
  }

  void find_missing() {
    // Files of ModernBERT name the layers before the last one alike in all heads, so a task takes those it finds.
    const bool by_last = !is_language_model(head_) && head_ != Head::kNone;
    const std::string last = by_last ? head_stages(config_, head_).back().linear + ".weight" : "";
    const bool head_in_file = std::any_of(specs_.begin(), specs_.end(), [&](const WeightSpec& spec) {
      const bool counts = by_last ? spec.name == last : starts_with_any(spec.name, kHeadModules);
      return counts && match_.names.contains(spec.name);
    });
    std::vector<std::string> missing;
    for (const WeightSpec& spec : specs_) {
      if (match_.names.contains(spec.name)) continue;
      if (spec.role == WeightRole::kTable) {
        match_.computed.push_back(spec.name);
      } else if (is_of_head(spec) && (!head_in_file || is_of_sentences(spec)) && fresh_head_ == FreshHead::kAllowed) {
        match_.fresh.push_back(spec.name);
      } else {
        missing.push_back(spec.name);
      }
    }
    if (missing.empty()) return;
    fail("weights", "all tensors of {} must be in the file, got {} missing, the first {} of shape {}",
         architecture_of(config_, head_), missing.size(), io::printable(file_name(config_, head_, missing[0])),
         shown(by_name_.at(missing[0])->shape));
  }

  const ModelConfig& config_;
  const Head head_;
  const std::vector<NamedShape>& file_;
  const FreshHead fresh_head_;
  const std::vector<WeightSpec>& specs_;
  const std::string prefix_;  // of the encoder's names in the model
  std::string file_prefix_;   // and in the file
  std::map<std::string, const WeightSpec*> by_name_;
  std::set<std::string> seen_;  // names as in the model
  WeightMatch match_;
};

}  // namespace

WeightMatch match_weights(const ModelConfig& config, Head head, const std::vector<NamedShape>& file,
                          FreshHead fresh_head, const std::vector<WeightSpec>& specs) {
  return Matcher(config, head, file, fresh_head, specs).run();
}

WeightMatch match_weights(const ModelConfig& config, Head head, const std::vector<NamedShape>& file,
                          FreshHead fresh_head) {
  return match_weights(config, head, file, fresh_head, weight_specs(config, head));
}

}  // namespace rf
