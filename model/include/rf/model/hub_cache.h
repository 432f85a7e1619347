// Models of the Hugging Face Hub by their id, "owner/name", in the cache that huggingface_hub keeps on this machine.
// Nothing is downloaded.
#pragma once

#include <optional>
#include <string>

namespace rf {

// The directory of a model in the cache: models--owner--name/snapshots/<hash>, where refs/main holds the hash. The
// cache is HF_HUB_CACHE, else HUGGINGFACE_HUB_CACHE, else HF_HOME/hub, else ~/.cache/huggingface/hub (XDG_CACHE_HOME).
std::optional<std::string> cached_model(const std::string& id);

// A path that exists as it is; an id as the directory in the cache. Throws MissingFileError for what is neither; for an
// id, "name" or "owner/name", the message says what to type.
std::string located_model(const std::string& path_or_id);

// Throws Error for a path that is no directory; MissingFileError, as located_model, for one that does not exist.
void check_model_directory(const std::string& model_dir);

}  // namespace rf
