// Which models open: the values of model_type in config.json, out of the tables of the readers; and where they lie.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rf {

std::vector<std::string_view> encoder_types();      // config.h
std::vector<std::string_view> decoder_types();      // foreign_models.h
std::vector<std::string_view> translation_types();  // translation_config.h

// Which of them a reader opens.
enum class Opens { kEncoders, kEncodersAndDecoders, kTranslation };

// Throws Error for a path that a reader does not open, before anything else of it is read: that is no directory, or
// whose config.json is no object or names another model_type. Returns for an object that says no type.
void check_model_type(const std::string& model_dir, Opens opens);
// Throws Error for config.json (`where`), whose model_type the reader does not open, and says what opens it.
[[noreturn]] void refuse_model_type(std::string_view where, const nlohmann::json& type, Opens opens);

// ---- Models of the Hugging Face Hub by their id, "owner/name", in the cache that huggingface_hub keeps on this
// machine. Nothing is downloaded.

// The directory of a model in the cache: models--owner--name/snapshots/<hash>, where refs/main holds the hash. The
// cache is HF_HUB_CACHE, else HUGGINGFACE_HUB_CACHE, else HF_HOME/hub, else ~/.cache/huggingface/hub (XDG_CACHE_HOME).
std::optional<std::string> cached_model(const std::string& id);

// A path that exists as it is; an id as the directory in the cache. Throws MissingFileError for what is neither; for an
// id, "name" or "owner/name", the message says what to type.
std::string located_model(const std::string& path_or_id);

// Throws Error for a path that is no directory; MissingFileError, as located_model, for one that does not exist.
void check_model_directory(const std::string& model_dir);

}  // namespace rf
