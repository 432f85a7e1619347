// One dictionary of rotary parameters (parts.h). The rules follow transformers' modeling_rope_utils; values that it
// leaves undefined or only warns about become findings. rf/model/rope_spec.h has the formulas of the scalings.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "parts.h"
#include "rf/io/error.h"

namespace rf {
namespace {

using nlohmann::json;

constexpr const char* kOriginalLength = "original_max_position_embeddings";

bool listed_in(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

class ParametersReader {
 public:
  ParametersReader(json dictionary, const std::string& path, const RotationShape& shape, Findings& findings)
      : dictionary_(std::move(dictionary)), path_(path), shape_(shape), findings_(findings) {
    for (auto item = dictionary_.begin(); item != dictionary_.end();)
      item = item->is_null() ? dictionary_.erase(item) : std::next(item);
  }

  Rotation read() {
    rotation_.base = shape_.base;
    if (shape_.family != nullptr) rotation_.layout = shape_.family->layout;
    rotation_.scaling = type_name();
    type_ = find_rope_type(rotation_.scaling);
    const bool is_known = type_ != nullptr && (shape_.scalings.empty() ? type_->type != RopeType::kNtk
                                                                       : listed_in(shape_.scalings, type_->name));
    if (!is_known) {
      findings_.problem("unknown-scaling", "{} names the scaling {}, which {} does not know", path_,
                        shown(json(rotation_.scaling)), shape_.reader);
      return rotation_;
    }
    if (shape_.base <= 1) {
      findings_.problem("base", "the base is {}, and frequencies only fall from pair to pair if it is above 1",
                        shape_.base);
    }
    const std::optional<int64_t> rotary_size = size_of_rotation();
    const bool complete_keys = fill_missing();
    drop_unread();
    if (!rotary_size || !complete_keys || !factor_is_usable() || !lists_fit(*rotary_size)) return rotation_;
    if (shape_.reader == "transformers") note_converter();
    read_spec(*rotary_size);
    check_lengths();
    return rotation_;
  }

 private:
  std::string path_of(std::string_view key) const { return fmt::format("{}.{}", path_, key); }

  std::string type_name() {
    const json* const old_name = given(dictionary_, "type");
    const json* const new_name = given(dictionary_, "rope_type");
    for (const json* value : {old_name, new_name}) {
      if (value != nullptr && !value->is_string()) {
        fail(shape_.file, "{} must be a string, got {}", path_of(value == old_name ? "type" : "rope_type"),
             shown(*value));
      }
    }
    if (old_name == nullptr && new_name == nullptr) return "default";
    std::string type = (new_name != nullptr ? new_name : old_name)->get<std::string>();
    // Original Qwen2-VL files have {"type": "mrope", "rope_type": "default"}; the axes of a text are equal.
    const bool is_mrope = old_name != nullptr && *old_name == "mrope";
    if (old_name != nullptr && new_name != nullptr && *old_name != *new_name && !is_mrope) {
      findings_.problem("types-differ", "{}.type is {} and {}.rope_type is {}; transformers 5 follows rope_type", path_,
                        shown(*old_name), path_, shown(*new_name));
    }
    if (type == "mrope") return "default";
    const bool is_phi3 = shape_.model_type == "phi3";
    return is_phi3 && (type == "su" || type == "yarn") ? "longrope" : type;
  }

  // The number of rotated elements; nullopt after a problem.
  std::optional<int64_t> size_of_rotation() {
    const double head = static_cast<double>(shape_.head_size);
    const int64_t size = shape_.share ? static_cast<int64_t>(std::floor(head * *shape_.share)) : shape_.rotary_dim;
    if (type_->type == RopeType::kProportional) return shape_.head_size;
    if (size > shape_.head_size) {
      findings_.problem("rotary-size", "{} elements of a head rotate, and a head has {}", size, shape_.head_size);
      return std::nullopt;
    }
    if (size < 2 || size % 2 != 0) {
      findings_.problem("rotary-size", "the rotated part of a head must be an even number of elements, at least 2: {}",
                        shape_.share ? fmt::format("{} * {} comes to {}", shape_.head_size, *shape_.share, size)
                                     : fmt::format("it has {}", size));
      return std::nullopt;
    }
    return size;
  }

  // Applies the defaults of transformers; false after a problem.
  bool fill_missing() {
    const bool needs_length = listed_in(type_->required, kOriginalLength);
    if (needs_length && shape_.original_length) {
      const json* const inside = given(dictionary_, kOriginalLength);
      if (inside != nullptr && *inside != *shape_.original_length) {
        findings_.problem("original-length", "{} is {} and {} is {}; transformers 5 follows the first", kOriginalLength,
                          *shape_.original_length, path_of(kOriginalLength), shown(*inside));
      }
      dictionary_[kOriginalLength] = *shape_.original_length;
    } else if (needs_length && given(dictionary_, kOriginalLength) == nullptr && shape_.length > 0) {
      findings_.note("original-length", "{} is absent, so that {} takes {}, {}", path_of(shape_.original_key),
                     shape_.reader, shape_.length_key, shape_.length);
      dictionary_[kOriginalLength] = shape_.length;
    }
    std::vector<std::string> missing;
    for (const std::string& key : type_->required) {
      if (given(dictionary_, key) == nullptr) missing.push_back(key);
    }
    if (missing.empty()) return true;
    findings_.problem("missing-key", "{} must have {} for scaling {}, without which {} refuses the model", path_,
                      fmt::join(missing, " and "), type_->name, shape_.reader);
    return false;
  }

  void drop(const char* key, std::string_view reason) {
    findings_.note("ignored-key", "{} is not read {}", path_of(key), reason);
    dictionary_.erase(key);
  }

  // Keys that transformers ignores and read_rope_spec() would refuse.
  void drop_unread() {
    std::vector<std::string> unread;
    for (const auto& [key, value] : dictionary_.items()) {
      const bool common = key == "type" || key == "rope_type" || key == "rope_theta" ||
                          key == "partial_rotary_factor" || key == "mrope_section" || key == "mrope_interleaved";
      if (!common && !listed_in(type_->required, key) && !listed_in(type_->optional, key)) unread.push_back(key);
    }
    if (!unread.empty()) {
      std::string extra;
      if (type_->type == RopeType::kDefault && listed_in(unread, "factor")) extra = "; nothing is scaled";
      findings_.note("ignored-key", "scaling {} does not read {} of {}{}", type_->name, fmt::join(unread, ", "), path_,
                     extra);
    }
    for (const std::string& key : unread) dictionary_.erase(key);
    const bool has_factor = given(dictionary_, "attention_factor") != nullptr;
    if (type_->type == RopeType::kYarn) {
      const auto is_set = [&](const char* key) {
        const json* const value = given(dictionary_, key);
        return value != nullptr && *value != 0;
      };
      const bool both = is_set("mscale") && is_set("mscale_all_dim");
      for (const char* key : {"mscale", "mscale_all_dim"}) {
        if (given(dictionary_, key) == nullptr) continue;
        if (has_factor)
          drop(key, "beside attention_factor");
        else if (!both)
          drop(key, "unless mscale and mscale_all_dim are both given and not 0");
      }
      for (const char* key : {"beta_fast", "beta_slow"}) {
        if (const json* const value = given(dictionary_, key); value != nullptr && *value == 0)
          drop(key, "where it is 0; the default applies");
      }
    }
    if (type_->type == RopeType::kLongrope && has_factor && given(dictionary_, "factor") != nullptr)
      drop("factor", "beside attention_factor");
  }

  bool factor_is_usable() {
    const json* const value = given(dictionary_, "factor");
    if (value == nullptr || !value->is_number()) return true;  // read_rope_spec() reports the wrong type
    const auto factor = value->get<double>();
    if (factor > 0 && factor < 1) {
      findings_.problem("factor", "{} must be at least 1, and is {}", path_of("factor"), factor);
      return false;
    }
    const bool longrope = type_->type == RopeType::kLongrope;
    if (factor == 1 && !longrope)
      findings_.note("factor-one", "{} is 1, so that scaling {} changes nothing", path_of("factor"), type_->name);
    return true;
  }

  bool lists_fit(int64_t rotary_size) {
    bool fit = true;
    if (type_->type != RopeType::kLongrope) return fit;
    for (const char* key : {"short_factor", "long_factor"}) {
      const json& list = dictionary_[key];
      if (!list.is_array()) fail(shape_.file, "{} must be a list of numbers, got {}", path_of(key), shown(list));
      if (std::ssize(list) == rotary_size / 2) continue;
      findings_.problem("factor-lists", "{} has {} numbers, and half of the rotated part of a head is {}", path_of(key),
                        list.size(), rotary_size / 2);
      fit = false;
    }
    return fit;
  }

  void read_spec(int64_t rotary_size) {
    dictionary_["rope_theta"] = shape_.base;
    dictionary_["rope_type"] = type_->name;
    for (const char* key : {"type", "partial_rotary_factor", "mrope_section", "mrope_interleaved"})
      dictionary_.erase(key);
    const bool proportional = type_->type == RopeType::kProportional;
    if (proportional && shape_.share) dictionary_["partial_rotary_factor"] = *shape_.share;
    const json options = {{"rope_parameters", dictionary_}};
    io::StrictObject object(options, shape_.file, "");
    try {
      const RopeShape sizes = {.head_dim = rotary_size,
                               .max_position_embeddings = std::max<int64_t>(shape_.length, 1),
                               .mrope_section = MropeSection::kUnknown};
      rotation_.spec = read_rope_spec(object, sizes);
    } catch (const Error& error) {
      // "[position_encoding] rope_parameters.factor must be ..": name this file and this dictionary instead.
      std::string text = error.what();
      if (const size_t end = text.find("] "); text.starts_with('[') && end != std::string::npos) text.erase(0, end + 2);
      constexpr std::string_view kRead = "rope_parameters";
      for (size_t at = text.find(kRead); at != std::string::npos; at = text.find(kRead, at + path_.size()))
        text.replace(at, kRead.size(), path_);
      fail(shape_.file, "{}", text);
    }
    rotation_.spec->head_dim = shape_.head_size;
    if (shape_.share && *shape_.share != 1) dictionary_["partial_rotary_factor"] = *shape_.share;
    rotation_.parameters = dictionary_.dump();
  }

  // Keys that llama.cpp's converter (conversion/base.py) does not write to a GGUF file.
  void note_converter() {
    constexpr const char* kRule = "not-in-gguf";
    if (type_->type == RopeType::kDynamic)
      findings_.note(kRule, "llama.cpp's converter does not carry scaling dynamic over into a GGUF file");
    const bool latent = shape_.family != nullptr && shape_.family->head_key == "qk_rope_head_dim";
    if (type_->type != RopeType::kYarn || latent) return;
    std::vector<std::string> lost;
    for (const char* key : {"mscale", "mscale_all_dim", "truncate"}) {
      if (given(dictionary_, key) != nullptr) lost.push_back(path_of(key));
    }
    if (!lost.empty())
      findings_.note(kRule, "llama.cpp's converter does not carry {} over into a GGUF file", fmt::join(lost, ", "));
  }

  void check_lengths() {
    const RopeSpec& spec = *rotation_.spec;
    if (shape_.length == 0) return;
    const double stretch = static_cast<double>(shape_.length) / static_cast<double>(spec.trained_length);
    const bool has_original = listed_in(type_->required, kOriginalLength);
    if (type_->type == RopeType::kDefault && shape_.original_length && *shape_.original_length < shape_.length) {
      findings_.problem("length", "{} is {} and {} is {}, but there is no scaling", shape_.length_key, shape_.length,
                        shape_.original_key, *shape_.original_length);
    }
    if (type_->type == RopeType::kYarn && stretch > 1 && spec.factor != stretch) {
      findings_.note("factor", "{} is {}, and {} is {} times {}; {} uses the first", path_of("factor"), spec.factor,
                     shape_.length_key, stretch, shape_.original_key, shape_.reader);
    }
    if (has_original && stretch <= 1 && spec.factor > 1) {
      findings_.note("length", "{}, {}, is not longer than {}, {}, although there is a scaling", shape_.length_key,
                     shape_.length, shape_.original_key, spec.trained_length);
    }
  }

  json dictionary_;
  const std::string& path_;
  const RotationShape& shape_;
  Findings& findings_;
  const RopeTypeKeys* type_ = nullptr;
  Rotation rotation_;
};

}  // namespace

Rotation read_rotation(json dictionary, const std::string& path, const RotationShape& shape, Findings& findings) {
  return ParametersReader(std::move(dictionary), path, shape, findings).read();
}

}  // namespace rf
