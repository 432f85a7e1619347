// Reads and checks vocab.txt like `transformers`' load_vocab: lines end with \n, \r\n or \r (Python's text mode) and
// with nothing else, so that tokens may contain U+2028; an empty line is an empty token and keeps its number. Unlike
// `transformers`, this refuses a token that occurs twice and bytes that are not UTF-8.
#include "rf/text/vocabulary.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <limits>

#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/utf8.h"

namespace rf::text {
namespace {

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = text.find_first_of("\r\n");
    lines.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + (text.substr(end).starts_with("\r\n") ? 2 : 1));
  }
  return lines;
}

struct SpecialField {
  std::string_view key;
  std::string SpecialNames::*name;
  int32_t SpecialIds::*id;
};

const SpecialField& field_of(SpecialRole role) {
  static constexpr SpecialField kFields[] = {
      {"pad_token", &SpecialNames::pad, &SpecialIds::pad},    {"unk_token", &SpecialNames::unk, &SpecialIds::unk},
      {"cls_token", &SpecialNames::cls, &SpecialIds::cls},    {"sep_token", &SpecialNames::sep, &SpecialIds::sep},
      {"mask_token", &SpecialNames::mask, &SpecialIds::mask}, {"bos_token", &SpecialNames::bos, &SpecialIds::bos},
      {"eos_token", &SpecialNames::eos, &SpecialIds::eos}};
  return kFields[static_cast<size_t>(role)];
}

}  // namespace

std::string_view config_key(SpecialRole role) { return field_of(role).key; }

std::string& name_of(SpecialNames& names, SpecialRole role) { return names.*field_of(role).name; }

const std::string& name_of(const SpecialNames& names, SpecialRole role) { return names.*field_of(role).name; }

int32_t id_of(const SpecialIds& ids, SpecialRole role) { return ids.*field_of(role).id; }

Vocabulary::Vocabulary(std::vector<std::string> tokens, SpecialNames names, int64_t model_size, std::string_view where)
    : tokens_(std::move(tokens)), model_size_(model_size == kAll ? size() : model_size), names_(std::move(names)) {
  if (tokens_.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    fail(where, "a vocabulary must have fewer than 2^31 tokens, got {}", tokens_.size());
  }
  ids_.reserve(tokens_.size());
  for (int64_t id = 0; id < size(); ++id) {
    const std::string& token = tokens_[static_cast<size_t>(id)];
    if (!is_utf8(token)) fail(where, "tokens must be UTF-8, got ill-formed bytes in line {}", id + 1);
    const auto [found, added] = ids_.try_emplace(token, static_cast<int32_t>(id));
    if (!added) {
      fail(where, "every token must occur once, got \"{}\" in lines {} and {}", token, found->second + 1, id + 1);
    }
  }
  for (const SpecialRole role : kSpecialRoles) {
    const std::string& token = name_of(names_, role);
    if (token.empty()) continue;
    const int32_t id = find(token);
    if (id < 0) {
      fail(where, "the {} must be among the tokens, got {} tokens without \"{}\"", config_key(role), size(), token);
    }
    special_.*field_of(role).id = id;
  }
}

void Vocabulary::require(std::initializer_list<SpecialRole> roles, std::string_view where) const {
  for (const SpecialRole role : roles) {
    if (id_of(special_, role) < 0) {
      fail(where, "the tokenizer must have a {}, got none; name one in tokenizer_config.json", config_key(role));
    }
  }
}

Vocabulary Vocabulary::load(const std::string& path, SpecialNames names) {
  return Vocabulary(read_lines(path), std::move(names), kAll, path);
}

void Vocabulary::save(const std::string& path) const {
  std::string text;
  for (int64_t id = 0; id < model_size_; ++id) {
    const std::string& token = tokens_[static_cast<size_t>(id)];
    if (token.find_first_of("\r\n") != std::string::npos) {
      fail("vocabulary", "{}: a token must not contain a line break, got one in token {}", path, id);
    }
    text.append(token).push_back('\n');
  }
  io::write_file(path, text);
}

int32_t Vocabulary::find(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? -1 : found->second;
}

const std::string& Vocabulary::token(int64_t id) const {
  if (id < 0 || id >= size()) fail("vocabulary", "a token id must be in [0, {}), got {}", size(), id);
  return tokens_[static_cast<size_t>(id)];
}

std::string Vocabulary::hash() const {
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  for (const std::string& token : tokens_) {
    XXH3_128bits_update(&state, token.data(), token.size());
    XXH3_128bits_update(&state, "\n", 1);
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(&state);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::vector<std::string> read_lines(const std::string& path) { return split_lines(io::read_file(path)); }

}  // namespace rf::text
