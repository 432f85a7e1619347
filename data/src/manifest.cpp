#include "manifest.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/text/tokenizer.h"

namespace rf::data {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "roformer-data";
constexpr int kVersion = 2;
constexpr int kVersionWithoutInputs = 1;  // also supported

// Reads the keys of one JSON object; each must be present with the right type, and other keys are errors.
class Object {
 public:
  Object(const json& value, std::string path) : value_(value), path_(std::move(path)) {
    if (!value.is_object()) fail("data", "{} must be a JSON object, got {}", path_, value.type_name());
  }

  bool has(const char* key) const { return value_.contains(key); }
  const json& at(const char* key) {
    const auto it = value_.find(key);
    if (it == value_.end()) fail("data", "{} must have the key \"{}\", got none", path_, key);
    ++used_;
    return *it;
  }
  std::string text(const char* key) {
    const json& value = at(key);
    if (!value.is_string()) fail("data", "{}: {} must be a text, got {}", path_, key, value.dump());
    return value.get<std::string>();
  }
  int64_t count(const char* key) {
    const json& value = at(key);
    const bool whole = value.is_number_unsigned() && value.get<uint64_t>() <= uint64_t(INT64_MAX);
    if (!whole) fail("data", "{}: {} must be a whole number from 0, got {}", path_, key, value.dump());
    return value.get<int64_t>();
  }
  uint64_t unsigned_number(const char* key) {
    const json& value = at(key);
    if (!value.is_number_unsigned()) {
      fail("data", "{}: {} must be a whole number from 0, got {}", path_, key, value.dump());
    }
    return value.get<uint64_t>();
  }
  double number(const char* key) {
    const json& value = at(key);
    if (!value.is_number()) fail("data", "{}: {} must be a number, got {}", path_, key, value.dump());
    return value.get<double>();
  }
  void finish() const {  // each key is read once, so an unknown key makes the count wrong
    if (used_ != value_.size()) fail("data", "{} must have {} keys, got {}", path_, used_, value_.size());
  }

 private:
  const json& value_;
  std::string path_;
  size_t used_ = 0;
};

// The name of a file in the directory.
std::string file_name(const json& value, const std::string& what, const std::string& extension) {
  const bool is_name = value.is_string() && std::filesystem::path(value.get<std::string>()).extension() == extension &&
                       value.get<std::string>().find('/') == std::string::npos;
  if (!is_name) fail("data", "{} must be a file name that ends in {}, got {}", what, extension, value.dump());
  return value.get<std::string>();
}

ManifestSplit read_split(const json& value, const std::string& path) {
  Object object(value, path);
  ManifestSplit split;
  split.documents = object.count("documents");
  split.tokens = object.count("tokens");
  const json& shards = object.at("shards");
  if (!shards.is_array()) fail("data", "{}: shards must be a list, got {}", path, shards.type_name());
  for (const json& shard : shards) split.shards.push_back(file_name(shard, path + ": a shard", ".rfs"));
  if (object.has("token_counts")) {
    split.token_counts = file_name(object.at("token_counts"), path + ": token_counts", ".npy");
  }
  object.finish();
  return split;
}

std::vector<std::string> read_texts(const json& value, const std::string& what) {
  const bool texts =
      value.is_array() && std::all_of(value.begin(), value.end(), [](const json& text) { return text.is_string(); });
  if (!texts) fail("data", "{} must be a list of texts, got {}", what, value.dump());
  return value.get<std::vector<std::string>>();
}

std::vector<std::string> read_tokenizer_files(const json& value, const std::string& path) {
  std::vector<std::string> names = read_texts(value, path + ": tokenizer_files");
  for (const std::string& name : names) {
    if (std::ranges::find(text::kTokenizerFiles, name) != std::end(text::kTokenizerFiles)) continue;
    fail("data", "{}: tokenizer_files must be names of a tokenizer's files, got {}", path, json(name).dump());
  }
  return names;
}

void read_inputs(Object& object, const std::string& path, Manifest& manifest) {
  manifest.inputs = read_texts(object.at("inputs"), path + ": inputs");
  if (object.has("split_inputs")) {
    const json& splits = object.at("split_inputs");
    if (!splits.is_object()) fail("data", "{}: split_inputs must be a JSON object, got {}", path, splits.type_name());
    for (const auto& [name, inputs] : splits.items()) {
      manifest.split_inputs[name] = read_texts(inputs, path + ": split_inputs: " + name);
    }
  }
  manifest.format = object.text("input_format");
  manifest.field = object.text("field");
  manifest.skipped_records = object.count("skipped_records");
}

ManifestPart read_part(const json& value, const std::string& path) {
  Object object(value, path);
  ManifestPart part;
  part.number = object.count("number");
  part.parts = object.count("of");
  if (part.number < 1 || part.number > part.parts) {
    fail("data", "{} must have a number from 1 to the number of parts, got {} of {}", path, part.number, part.parts);
  }
  part.shard_tokens = object.count("shard_tokens");
  if (part.shard_tokens < 1) fail("data", "{}: shard_tokens must be at least 1, got {}", path, part.shard_tokens);
  part.input_hash = object.text("input_hash");
  part.quotes = object.text("quotes");
  part.bad_records = object.text("bad_records");
  object.finish();
  return part;
}

}  // namespace

Manifest read_manifest(const std::string& data_dir) {
  const std::string path = data_dir + "/" + kManifestName;
  if (!io::has_file(path)) {
    fail("data", "{} must be a directory made by prepare, got no {} in it", data_dir, kManifestName);
  }
  const json root = io::read_json(path);
  Object object(root, path);
  const int64_t version = object.count("version");
  if (object.text("format") != kFormat || version < kVersionWithoutInputs || version > kVersion) {
    fail("data", "{}: format must be {} version {}, got {} version {}", path, kFormat, kVersion, root["format"].dump(),
         root["version"].dump());
  }
  Manifest manifest;
  manifest.vocab_hash = object.text("vocab_hash");
  manifest.vocab_size = object.count("vocab_size");
  if (version > kVersionWithoutInputs) read_inputs(object, path, manifest);
  manifest.document_rule = object.text("document_rule");
  if (object.has("words")) manifest.words = object.text("words");
  if (object.has("dictionary")) manifest.dictionary = object.text("dictionary");
  if (object.has("tokenizer_files")) {
    manifest.tokenizer_files = read_tokenizer_files(object.at("tokenizer_files"), path);
  }
  manifest.valid_fraction = object.number("valid_fraction");
  manifest.seed = object.unsigned_number("seed");
  manifest.input_files = object.count("input_files");
  manifest.input_bytes = object.count("input_bytes");
  manifest.unknown_tokens = object.count("unknown_tokens");
  manifest.replaced_bytes = object.count("replaced_bytes");
  if (object.has("part")) manifest.part = read_part(object.at("part"), path + ": part");
  const json& splits = object.at("splits");
  if (!splits.is_object()) fail("data", "{}: splits must be a JSON object, got {}", path, splits.type_name());
  for (const auto& [name, split] : splits.items()) manifest.splits[name] = read_split(split, path + ": " + name);
  object.finish();
  return manifest;
}

void write_manifest(const std::string& data_dir, const Manifest& manifest) {
  nlohmann::ordered_json root = {
      {"format", kFormat},
      {"version", kVersion},
      {"vocab_hash", manifest.vocab_hash},
      {"vocab_size", manifest.vocab_size},
      {"inputs", manifest.inputs},
      {"input_format", manifest.format},
      {"field", manifest.field},
      {"document_rule", manifest.document_rule},
      {"words", manifest.words},
      {"valid_fraction", manifest.valid_fraction},
      {"seed", manifest.seed},
      {"input_files", manifest.input_files},
      {"input_bytes", manifest.input_bytes},
      {"skipped_records", manifest.skipped_records},
      {"unknown_tokens", manifest.unknown_tokens},
      {"replaced_bytes", manifest.replaced_bytes},
      {"splits", nlohmann::ordered_json::object()},
  };
  if (!manifest.dictionary.empty()) root["dictionary"] = manifest.dictionary;
  if (manifest.tokenizer_files) root["tokenizer_files"] = *manifest.tokenizer_files;
  if (const std::optional<ManifestPart>& part = manifest.part) {
    root["part"] = {{"number", part->number},         {"of", part->parts},      {"shard_tokens", part->shard_tokens},
                    {"input_hash", part->input_hash}, {"quotes", part->quotes}, {"bad_records", part->bad_records}};
  }
  for (const auto& [name, inputs] : manifest.split_inputs) root["split_inputs"][name] = inputs;
  for (const auto& [name, split] : manifest.splits) {
    root["splits"][name] = {{"documents", split.documents}, {"tokens", split.tokens}, {"shards", split.shards}};
    if (!split.token_counts.empty()) root["splits"][name]["token_counts"] = split.token_counts;
  }
  // The name of an input, or a field, may contain bytes that are not UTF-8.
  const std::string text = root.dump(2, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
  io::write_file(data_dir + "/" + kManifestName, text + "\n");
}

void check_vocabulary(const Manifest& manifest, const ShardReader& shard) {
  if (shard.vocab_hash() == manifest.vocab_hash && shard.vocab_size() == manifest.vocab_size) return;
  shard.verify();  // reports that the file is damaged, which is more precise
  fail("data", "{} must have the vocabulary of data.json, {} of {} tokens, got {} of {}", shard.path(),
       manifest.vocab_hash, manifest.vocab_size, shard.vocab_hash(), shard.vocab_size());
}

void check_counts(const std::string& label, const ManifestSplit& split, int64_t documents, int64_t tokens) {
  if (tokens == split.tokens && documents == split.documents) return;
  fail("data", "{}: the shards must hold {} tokens in {} documents, got {} in {}", label, split.tokens, split.documents,
       tokens, documents);
}

}  // namespace rf::data
