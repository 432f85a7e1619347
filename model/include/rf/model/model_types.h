// Which models can be opened: the values of model_type in config.json, from the readers' tables; and where models are.
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

// The types that a reader opens.
enum class Opens { kEncoders, kEncodersAndDecoders, kTranslation };

// Throws Error for a path that the reader cannot open, before it reads the rest: not a directory, or a config.json that
// is not an object or names another model_type. The type may be absent, except with kTranslation.
void check_model_type(const std::string& model_dir, Opens opens);
// Throws Error for config.json (`where`), whose model_type the reader does not open, and says what opens it.
[[noreturn]] void refuse_model_type(std::string_view where, const nlohmann::json& type, Opens opens);

// ---- Models of the Hugging Face Hub by their id, "owner/name", in the cache that huggingface_hub keeps on this
// machine. Nothing is downloaded.

// The directory of a model in the cache: models--owner--name/snapshots/<hash>, where refs/main holds the hash. The
// cache is HF_HUB_CACHE, else HUGGINGFACE_HUB_CACHE, else HF_HOME/hub, else ~/.cache/huggingface/hub (XDG_CACHE_HOME).
std::optional<std::string> cached_model(const std::string& id);

// Returns an existing path unchanged, and for an id its directory in the cache. Throws MissingFileError otherwise; for
// an id, "name" or "owner/name", the message says what to type.
std::string located_model(const std::string& path_or_id);

// Throws Error for a path that is not a directory; MissingFileError, as located_model, for one that does not exist.
void check_model_directory(const std::string& model_dir);

}  // namespace rf
