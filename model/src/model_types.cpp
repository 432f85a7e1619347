// The model types of all readers (rf/model/model_types.h).
#include "rf/model/model_types.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "names.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/model_folder.h"
#include "rf/io/nearest_name.h"
#include "rf/model/hub_cache.h"
#include "rf/model/rotary_decoder.h"

namespace rf {
namespace {

using Types = std::vector<std::string_view>;

Types joined(Types first, const Types& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Types types_of(Opens opens) {
  if (opens == Opens::kTranslation) return translation_types();
  return opens == Opens::kEncoders ? encoder_types() : joined(encoder_types(), decoder_types());
}

Types all_types() { return joined(types_of(Opens::kEncodersAndDecoders), translation_types()); }

bool holds(const Types& types, const nlohmann::json& type) {
  return type.is_string() && std::ranges::find(types, type.get_ref<const std::string&>()) != types.end();
}

}  // namespace

void check_model_type(const std::string& model_dir, Opens opens) {
  if (opens == Opens::kEncodersAndDecoders && gguf_path(model_dir)) return;
  check_model_directory(model_dir);
  const std::string path = model_dir + "/config.json";
  if (!io::has_file(path)) {
    fail<MissingFileError>("model", "a directory must hold the files of a model, such as config.json, got {} in {}",
                           io::found_without_model(model_dir), model_dir);
  }
  const nlohmann::json object = io::read_json(path);
  if (!object.is_object() || object.empty())
    fail(path, "must be a JSON object with the keys of a model, got {}", shown(object));
  const auto type = object.find("model_type");
  const bool says_none = type == object.end() || type->is_null() || *type == "";
  if (says_none && opens == Opens::kTranslation)
    fail(path, "model_type must be {}, got none", io::listed(types_of(opens), "or"));
  if (!says_none && !holds(types_of(opens), *type)) refuse_model_type(path, *type, opens);
}

void refuse_model_type(std::string_view where, const nlohmann::json& type, Opens opens) {
  if (!type.is_string()) fail(where, "model_type must be a string or null, got {}", shown(type));
  if (!holds(all_types(), type)) {
    fail(where, "model_type must be one that this program computes, {}, got {}{}", io::listed(all_types(), "or"),
         shown(type), opens == Opens::kEncoders ? "; here it must be an encoder" : "");
  }
  const char* const other = holds(encoder_types(), type)   ? "an encoder, which Engine and roformer embed open"
                            : holds(decoder_types(), type) ? "a decoder, which Engine and roformer generate open"
                                                           : "a model of translation, which load_translation_model "
                                                             "and roformer translate open";
  fail(where, "model_type must be {} here, got {}, {}", io::listed(types_of(opens), "or"), shown(type), other);
}

}  // namespace rf
