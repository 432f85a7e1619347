// The model types of all readers, and the cache of huggingface_hub (rf/model/model_types.h).
#include "rf/model/model_types.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "names.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/nearest_name.h"
#include "rf/io/printable.h"
#include "rf/model/foreign_models.h"

namespace rf {
namespace {

namespace fs = std::filesystem;

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

// Parts of other models in transformers that this program lacks.
constexpr std::pair<std::string_view, std::string_view> kLacking[] = {
    {"attention sinks with experts in every layer", " openai_privacy_filter "},
    {"convolutions between layers of attention", " lfm2 "},
    {"a decoder that attends to an encoder",
     " bart encoder-decoder led m2m_100 mbart pegasus prophetnet t5gemma t5gemma2 umt5 "},
    {"global tokens beside windows", " longformer "},
    {"random blocks of attention", " big_bird "},
    {"an approximation of attention", " nystromformer reformer yoso "},
    {"convolutions beside attention", " convbert "},
    {"convolutions in place of matrices", " squeezebert "},
    {"Fourier transforms in place of attention", " fnet "},
    {"pooling between layers", " canine funnel perceiver "},
    {"narrow layers inside each layer", " mobilebert "},
    {"two streams of attention", " xlnet "},
    {"a recurrence", " falcon_mamba jamba mamba mamba2 rwkv zamba zamba2 "},
    {"inputs besides text", " layoutlm layoutlmv2 layoutlmv3 lilt luke markuplm mluke tapas "},
    {"adapters of languages", " xmod "}};

std::string lacking_for(const std::string& type) {
  const std::string name = fmt::format(" {} ", type);
  for (const auto& [mechanism, types] : kLacking) {
    if (types.find(name) != std::string_view::npos) return fmt::format(", because it needs {}", mechanism);
  }
  return "";
}

bool holds(const Types& types, const nlohmann::json& type) {
  return type.is_string() && std::ranges::find(types, type.get_ref<const std::string&>()) != types.end();
}

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
    const auto name = type.get<std::string>();
    const Types known = types_of(opens);
    const std::string_view near = io::nearest_name(name, known);
    fail(where, "model_type {} is not supported{}; the page docs/engine.md lists the supported types{}", shown(type),
         lacking_for(name), near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near));
  }
  const char* const kind = holds(encoder_types(), type)   ? "an encoder, which Engine and roformer embed open"
                           : holds(decoder_types(), type) ? "a decoder, which Engine and roformer generate open"
                                                          : "a model of translation, which load_translation_model "
                                                            "and roformer translate open";
  const char* const asked = opens == Opens::kEncoders      ? "an encoder"
                            : opens == Opens::kTranslation ? "a model of translation"
                                                           : "an encoder or a decoder";
  fail(where, "model_type must be that of {} here, got {}, {}", asked, shown(type), kind);
}

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
