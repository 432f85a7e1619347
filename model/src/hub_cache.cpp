// Looking a model up in the cache of huggingface_hub (rf/model/hub_cache.h).
#include "rf/model/hub_cache.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/printable.h"

namespace rf {
namespace {

namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

fs::path hub_cache() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const std::string value = environment(name); !value.empty()) return value;
  }
  if (const std::string home = environment("HF_HOME"); !home.empty()) return fs::path(home) / "hub";
  const std::string cache = environment("XDG_CACHE_HOME");
  return (cache.empty() ? fs::path(environment("HOME")) / ".cache" : fs::path(cache)) / "huggingface" / "hub";
}

// name or owner/name, of letters, digits, '-', '_' and '.'.
bool is_hub_id(const std::string& text) {
  const auto fits = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '/';
  };
  const size_t slash = text.find('/');
  return !text.empty() && slash == text.rfind('/') && slash != 0 && slash != text.size() - 1 && text[0] != '.' &&
         text.find("..") == std::string::npos && std::ranges::all_of(text, fits);
}

std::string first_word(const std::string& text) { return text.substr(0, text.find_first_of(" \t\r\n")); }

}  // namespace

std::optional<std::string> cached_model(const std::string& id) {
  if (!is_hub_id(id)) return std::nullopt;
  std::string folder = "models--" + id;
  if (const size_t slash = folder.find('/'); slash != std::string::npos) folder.replace(slash, 1, "--");
  const fs::path model = hub_cache() / folder, reference = model / "refs" / "main";
  std::error_code error;
  if (!fs::is_regular_file(reference, error)) return std::nullopt;
  const fs::path snapshot = model / "snapshots" / first_word(io::read_file(reference.string()));
  return fs::is_directory(snapshot, error) ? std::optional(snapshot.string()) : std::nullopt;
}

std::string located_model(const std::string& path_or_id) {
  std::error_code error;
  if (fs::exists(fs::symlink_status(path_or_id, error))) return path_or_id;
  if (const std::optional<std::string> cached = cached_model(path_or_id)) return *cached;
  const bool is_id = is_hub_id(path_or_id) && !path_or_id.ends_with(".gguf");
  fail<MissingFileError>(
      "model", "a model must be a directory with config.json and model.safetensors{}, got {}, which does not exist{}",
      is_id ? fmt::format(", or an id of the Hugging Face Hub that is in the local cache {}", hub_cache().string())
            : "",
      path_or_id, is_id ? fmt::format("; for a model of the Hub, type: hf download {}", path_or_id) : "");
}

void check_model_directory(const std::string& model_dir) {
  std::error_code error;
  if (fs::is_directory(model_dir, error)) return;
  constexpr const char* kRule = "a model must be a directory with config.json and model.safetensors, got";
  if (fs::exists(model_dir, error)) fail("model", "{} {}, which is not a directory", kRule, model_dir);
  static_cast<void>(located_model(model_dir));  // says what to type for an id of the Hub
  fail<MissingFileError>("model", "{} {}, which does not exist", kRule, model_dir);
}

}  // namespace rf
