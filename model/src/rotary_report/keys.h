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
  // prefix: what the names of keys begin with in messages, "" or "text_config."
  Keys(const nlohmann::json& object, const std::string& file, std::string prefix)
      : object_(object), file_(file), prefix_(std::move(prefix)) {}

  // The first of these keys that is there; 0, "", the fallback where none is.
  int64_t integer(std::initializer_list<const char*> names, int64_t low, int64_t high) const;
  std::string text(std::initializer_list<const char*> names) const;
  bool boolean(const char* name, bool fallback) const;
  double number(const char* name, double fallback, io::NumberRange range) const;
  // The object or list of that name; nullptr where it is absent.
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

// The keys by which a model says that it rotates, those of all families.
std::span<const std::string_view> rotary_keys();
// A note for each of them that is there and that the family does not read; a problem for a scaling.
void note_unread_keys(const nlohmann::json& config, const std::string& prefix, const std::string& model_type,
                      const RotaryFamily* family, Findings& findings);

// The base of a dictionary: its own rope_theta, otherwise top_key at the top level, otherwise fallback.
double base_of(const nlohmann::json& dictionary, const std::string& path, const Keys& top, std::string_view top_key,
               double fallback, Findings& findings);

struct GivenRotation {
  std::string layers;  // "all" or a layer type
  std::string path;
  nlohmann::json dictionary;
};
// The dictionaries of rope_parameters and rope_scaling, one for each rotation that the model has.
std::vector<GivenRotation> given_rotations(const Keys& keys, const std::string& model_type, const RotaryFamily* family,
                                           LayerTypes layers, Findings& findings);

// Numbers of the layers that do not rotate.
std::vector<int64_t> unrotated_layers(const Keys& keys, UnrotatedLayers rule, int64_t layers, Findings& findings);

}  // namespace rf
