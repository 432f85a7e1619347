#include "manifest.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "input_files.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/npy.h"
#include "rf/io/strict_object.h"
#include "rf/text/tokenizer.h"

namespace rf::data {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "roformer-data";
constexpr int kVersion = 2;

// The values of keys that must be present.
const json& required(io::StrictObject& object, const char* key) {
  object.require({key});
  return *object.find(key);
}
std::string required_text(io::StrictObject& object, const char* key) {
  object.require({key});
  return object.text(key, "");
}
int64_t required_count(io::StrictObject& object, const char* key) {
  object.require({key});
  return object.integer(key, 0, 0, INT64_MAX);
}

// The name of a file in the directory.
std::string file_name(const json& value, const std::string& what, const std::string& extension) {
  const bool is_name = value.is_string() && std::filesystem::path(value.get<std::string>()).extension() == extension &&
                       value.get<std::string>().find('/') == std::string::npos;
  if (!is_name) fail("data", "{} must be a file name that ends in {}, got {}", what, extension, value.dump());
  return value.get<std::string>();
}

ManifestSplit read_split(io::StrictObject object, const std::string& path) {
  ManifestSplit split;
  split.documents = required_count(object, "documents");
  split.tokens = required_count(object, "tokens");
  const json& shards = required(object, "shards");
  if (!shards.is_array()) fail("data", "{}: shards must be a list, got {}", path, shards.type_name());
  for (const json& shard : shards) split.shards.push_back(file_name(shard, path + ": a shard", ".rfs"));
  split.token_counts = file_name(required(object, "token_counts"), path + ": token_counts", ".npy");
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

void read_inputs(io::StrictObject& object, const std::string& path, Manifest& manifest) {
  manifest.inputs = read_texts(required(object, "inputs"), path + ": inputs");
  if (const json* splits = object.find("split_inputs")) {
    if (!splits->is_object()) fail("data", "{}: split_inputs must be a JSON object, got {}", path, splits->type_name());
    for (const auto& [name, inputs] : splits->items()) {
      manifest.split_inputs[name] = read_texts(inputs, path + ": split_inputs: " + name);
    }
  }
  manifest.format = required_text(object, "input_format");
  manifest.field = required_text(object, "field");
  manifest.skipped_records = required_count(object, "skipped_records");
}

ManifestPart read_part(io::StrictObject object, const std::string& path) {
  ManifestPart part{.number = required_count(object, "number"),
                    .parts = required_count(object, "of"),
                    .shard_tokens = required_count(object, "shard_tokens"),
                    .input_hash = required_text(object, "input_hash"),
                    .quotes = required_text(object, "quotes"),
                    .bad_records = required_text(object, "bad_records")};
  if (part.number < 1 || part.number > part.parts) {
    fail("data", "{} must have a number from 1 to the number of parts, got {} of {}", path, part.number, part.parts);
  }
  if (part.shard_tokens < 1) fail("data", "{}: shard_tokens must be at least 1, got {}", path, part.shard_tokens);
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
  io::StrictObject object(root, "data: " + path, "");
  const int64_t version = required_count(object, "version");
  if (required_text(object, "format") != kFormat || version != kVersion) {
    fail("data", "{}: format must be {} version {}, got {} version {}", path, kFormat, kVersion, root["format"].dump(),
         root["version"].dump());
  }
  Manifest manifest;
  manifest.vocab_hash = required_text(object, "vocab_hash");
  manifest.vocab_size = required_count(object, "vocab_size");
  read_inputs(object, path, manifest);
  manifest.document_rule = required_text(object, "document_rule");
  manifest.words = object.text("words", manifest.words);
  manifest.dictionary = object.text("dictionary", "");
  manifest.tokenizer_files = read_tokenizer_files(required(object, "tokenizer_files"), path);
  object.require({"valid_fraction", "seed"});
  manifest.valid_fraction = object.number("valid_fraction", 0, {0, 1});
  const json& seed = *object.find("seed");
  if (!seed.is_number_unsigned()) fail("data", "{}: seed must be an integer from 0, got {}", path, seed.dump());
  manifest.seed = seed.get<uint64_t>();
  manifest.input_files = required_count(object, "input_files");
  manifest.input_bytes = required_count(object, "input_bytes");
  manifest.unknown_tokens = required_count(object, "unknown_tokens");
  manifest.replaced_bytes = required_count(object, "replaced_bytes");
  if (object.find("part") != nullptr) manifest.part = read_part(object.object("part"), path + ": part");
  io::StrictObject splits = object.object("splits");
  for (const std::string& name : splits.unasked()) {
    manifest.splits[name] = read_split(splits.object(name), path + ": " + name);
  }
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
      {"tokenizer_files", manifest.tokenizer_files},
      {"splits", nlohmann::ordered_json::object()},
  };
  if (!manifest.dictionary.empty()) root["dictionary"] = manifest.dictionary;
  if (const std::optional<ManifestPart>& part = manifest.part) {
    root["part"] = {{"number", part->number},         {"of", part->parts},      {"shard_tokens", part->shard_tokens},
                    {"input_hash", part->input_hash}, {"quotes", part->quotes}, {"bad_records", part->bad_records}};
  }
  for (const auto& [name, inputs] : manifest.split_inputs) root["split_inputs"][name] = inputs;
  for (const auto& [name, split] : manifest.splits) {
    root["splits"][name] = {{"documents", split.documents},
                            {"tokens", split.tokens},
                            {"shards", split.shards},
                            {"token_counts", split.token_counts}};
  }
  // The name of an input, or a field, may contain bytes that are not UTF-8.
  const std::string text = root.dump(2, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
  io::write_file(data_dir + "/" + kManifestName, text + "\n");
}

int64_t shard_bytes(const std::string& data_dir, const Manifest& manifest) {
  int64_t bytes = 0;
  for (const auto& [name, split] : manifest.splits) {
    for (const std::string& shard : split.shards) bytes += total_bytes({data_dir + "/" + shard});
  }
  return bytes;
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

void write_token_counts(const std::string& path, std::span<const int64_t> counts) {
  io::write_npy(path, io::DType::kI64, {std::ssize(counts)}, std::as_bytes(counts));
}

std::vector<int64_t> read_token_counts(const std::string& path, int64_t vocab_size) {
  const io::NpyArray array = io::read_npy(path);
  if (array.dtype != io::DType::kI64 || array.shape != std::vector{vocab_size}) {
    fail("data", "{} must hold an int64 for each of the {} ids of the vocabulary, got {} numbers", path, vocab_size,
         array.data.size() / sizeof(int64_t));
  }
  return array.to_int64(path);
}

void check_token_counts(const std::string& path, std::span<const int64_t> counts, int64_t tokens) {
  int64_t left = tokens;
  for (const int64_t count : counts) {
    if (count < 0 || count > left) fail("data", "{} must sum to the {} tokens of the split, got more", path, tokens);
    left -= count;
  }
  if (left > 0) fail("data", "{} must sum to the {} tokens of the split, got {}", path, tokens, tokens - left);
}

}  // namespace rf::data
