// Keys of config.json, by their meaning for the rotation.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parts.h"

namespace rf {

// Typed reading of an object, where null means absent. Throws Error naming the file, the key and its value.
class Keys {
 public:
  // prefix: prepended to the names of keys in messages, "" or "text_config."
  Keys(const nlohmann::json& object, const std::string& file, std::string prefix)
      : object_(object), file_(file), prefix_(std::move(prefix)) {}

  // The first given key that exists; 0, "", or the fallback if all are missing.
  int64_t integer(std::initializer_list<const char*> names, int64_t low, int64_t high) const;
  std::string text(std::initializer_list<const char*> names) const;
  bool boolean(const char* name, bool fallback) const;
  double number(const char* name, double fallback, io::NumberRange range) const;
  // The object or list of that name; nullptr if it is absent.
  const nlohmann::json* object(const char* name) const;
  const nlohmann::json* list(const char* name) const;

  const nlohmann::json& json() const { return object_; }
  const std::string& prefix() const { return prefix_; }
  const std::string& file() const { return file_; }

 private:
  const nlohmann::json& object_;
  const std::string& file_;
  std::string prefix_;
};

// The keys by which a model describes its rotation, for all families.
std::span<const std::string_view> rotary_keys();
// Adds a note for each existing key that the family does not read; a problem for a scaling.
void note_unread_keys(const nlohmann::json& config, const std::string& prefix, const std::string& model_type,
                      const RotaryFamily* family, Findings& findings);

// The base of a dictionary: its rope_theta, otherwise top_key at the top level, otherwise fallback.
double base_of(const nlohmann::json& dictionary, const std::string& path, const Keys& top, std::string_view top_key,
               double fallback, Findings& findings);

struct GivenRotation {
  std::string layers;  // "all" or a layer type
  std::string path;
  nlohmann::json dictionary;
};
// The dictionaries of rope_parameters and rope_scaling, one per rotation of the model.
std::vector<GivenRotation> given_rotations(const Keys& keys, const std::string& model_type, const RotaryFamily* family,
                                           LayerTypes layers, Findings& findings);

// Numbers of the layers that do not rotate.
std::vector<int64_t> unrotated_layers(const Keys& keys, UnrotatedLayers rule, int64_t layers, Findings& findings);

}  // namespace rf
