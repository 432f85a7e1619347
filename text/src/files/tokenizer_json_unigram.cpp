// The sections of tokenizer.json for a model Unigram. Each step is read key by key, and others are refused.
#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "files/base64.h"
#include "files/tokenizer_files.h"
#include "files/tokenizer_json_section.h"
#include "rf/io/error.h"
#include "rf/io/nearest_name.h"

namespace rf::text {
namespace {

using nlohmann::json;
using Kind = NormalizerStep::Kind;

// Throws Error for other characters.
std::string bytes_of_base64(std::string_view text, const std::string& where) {
  while (text.ends_with('=')) text.remove_suffix(1);
  DecodedBase64 decoded = decode_base64(text);
  if (decoded.wrong) fail(kTokenizerJsonWhere, "{} must be base64, got the character \"{}\"", where, *decoded.wrong);
  return std::move(decoded.bytes);
}

class UnigramReader : SectionReader {
 public:
  UnigramReader(const std::string& path, TokenizerJson& out) : SectionReader(path), out_(out) {}
  void read(const json& file) {
    out_.options.pipeline = Pipeline::kUnigram;
    const auto section = [&file](const char* key) { return file.value(key, json()); };
    read_model(file["model"]);
    each_step(section("normalizer"), "normalizer", "normalizers",
              [&](const json& step, const std::string& key) { read_normalizer(step, key); });
    each_step(section("pre_tokenizer"), "pre_tokenizer", "pretokenizers",
              [&](const json& step, const std::string& key) { read_pre_tokenizer(step, key); });
    if (!has_metaspace_)
      refuse("pre_tokenizer", "Metaspace, perhaps after WhitespaceSplit and Punctuation", section("pre_tokenizer"));
    read_decoder(section("decoder"));
    out_.options.unigram = std::make_shared<const UnigramOptions>(std::move(options_));
  }

 private:
  template <typename Read>
  void each_step(const json& value, const std::string& key, const char* list, Read read) const {
    if (value.is_null()) return;
    if (type_of(value) != "Sequence") return read(value, key);
    StrictObject sequence = typed(value, key);
    const json* steps = sequence.find(list);
    if (steps == nullptr || !steps->is_array()) refuse(key + "." + list, "an array", value);
    sequence.finish();
    for (size_t i = 0; i < steps->size(); ++i) {
      each_step((*steps)[i], key + "." + list + "[" + std::to_string(i) + "]", list, read);
    }
  }
  void read_model(const json& value) {
    StrictObject model = typed(value, "model");
    const json* vocab = model.find("vocab");
    if (vocab == nullptr || !vocab->is_array()) refuse("model.vocab", "an array of tokens with scores", json());
    for (const json& item : *vocab) {
      if (!item.is_array() || item.size() != 2 || !item[0].is_string() || !item[1].is_number()) {
        refuse("model.vocab", "an array of tokens with scores", item);
      }
      out_.tokens.push_back(item[0].get<std::string>());
      options_.scores.push_back(item[1].get<double>());
    }
    const json* unk = model.find("unk_id");
    if (unk == nullptr || !unk->is_number_unsigned() || *unk >= out_.tokens.size()) {
      refuse("model.unk_id", "the id of a token", unk == nullptr ? json() : *unk);
    }
    options_.unk = unk->get<int32_t>();
    out_.unk_token = out_.tokens[static_cast<size_t>(options_.unk)];
    options_.byte_fallback = model.boolean("byte_fallback", false);
    model.finish();
  }
  void read_normalizer(const json& value, const std::string& key) {
    const std::string type = type_of(value);
    StrictObject step = typed(value, key);
    NormalizerStep read;
    if (type == "Precompiled") {
      // transformers writes null for a model without a map
      const json* map = step.find("precompiled_charsmap");
      if (map == nullptr || !map->is_string()) refuse(key + ".precompiled_charsmap", "a text in base64", value);
      read = {.kind = Kind::kPrecompiled, .text = bytes_of_base64(map->get<std::string>(), path_ + ": " + key)};
    } else if (type == "Replace") {
      read = read_replace(step, key);
    } else if (type == "Strip") {
      read = {
          .kind = Kind::kStrip, .left = step.boolean("strip_left", true), .right = step.boolean("strip_right", true)};
    } else if (type == "Prepend") {
      read = {.kind = Kind::kPrepend, .text = step.text("prepend", "")};
    } else {
      const auto* found =
          std::ranges::find(kPlainNormalizers, type, &std::pair<std::string_view, NormalizerStep::Kind>::first);
      if (found == std::end(kPlainNormalizers)) {
        refuse(key, "Precompiled, Replace, Strip, Prepend, " + names_of_plain() + " for a Unigram model", value);
      }
      read.kind = found->second;
    }
    step.finish();
    options_.normalizers.push_back(std::move(read));
  }
  static std::string names_of_plain() {
    std::vector<std::string_view> names;
    std::ranges::transform(kPlainNormalizers, std::back_inserter(names), [](const auto& plain) { return plain.first; });
    return io::listed(names, "or");
  }
  NormalizerStep read_replace(StrictObject& step, const std::string& key) const {
    const json* pattern = step.find("pattern");
    const std::string content = step.text("content", "");
    const bool is_one = pattern != nullptr && pattern->is_object() && pattern->size() == 1;
    for (const auto& [name, kind] :
         {std::pair("String", Kind::kReplace), std::pair("Regex", Kind::kReplaceExpression)}) {
      if (is_one && pattern->contains(name) && (*pattern)[name].is_string()) {
        return {.kind = kind, .text = (*pattern)[name].get<std::string>(), .content = content};
      }
    }
    refuse(key + ".pattern", "a String or a Regex", pattern == nullptr ? json() : *pattern);
  }
  void read_pre_tokenizer(const json& value, const std::string& key) {
    const std::string type = type_of(value);
    if (has_metaspace_ || (type != "Metaspace" && type != "WhitespaceSplit" && type != "Punctuation")) {
      refuse(key, "WhitespaceSplit, Punctuation or a last Metaspace for a Unigram model", value);
    }
    StrictObject step = typed(value, key);
    if (type == "WhitespaceSplit") {
      options_.split_spaces = true;
    } else if (type == "Punctuation") {
      options_.split_punctuation = true;
      expect(step, "behavior", "Isolated", "\"Isolated\"");
    } else {
      has_metaspace_ = true;
      options_.prefix = read_prefix(step);
      options_.splits = step.boolean("split", true);
    }
    step.finish();
  }
  void read_decoder(const json& value) {
    DecodingOptions& decoding = out_.options.decoding;
    decoding.join = DecodingOptions::Join::kSpaces;
    if (value.is_null()) return;
    if (type_of(value) != "Metaspace") refuse("decoder", "null or Metaspace for a Unigram model", value);
    StrictObject step = typed(value, "decoder");
    decoding.join = DecodingOptions::Join::kMetaspace;
    decoding.strip_left = read_prefix(step) == Prefix::kNever ? 0 : 1;
    step.find("split");
    step.finish();
  }

  TokenizerJson& out_;
  UnigramOptions options_;
  bool has_metaspace_ = false;
};

}  // namespace

void read_unigram_json(const nlohmann::json& file, const std::string& path, TokenizerJson& out) {
  UnigramReader(path, out).read(file);
}

}  // namespace rf::text
