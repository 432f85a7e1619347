// Reading and checking vocab.txt as `transformers`' load_vocab does: lines end with \n, \r\n or \r (Python's text mode)
// and with nothing else, so that tokens may hold U+2028; an empty line is an empty token and keeps its number. What
// `transformers` accepts in silence and this refuses: a token that occurs twice, bytes that are no UTF-8.
#include "rf/text/vocabulary.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <limits>

#include "rf/io/error.h"
#include "rf/io/files.h"
#include "splitter.h"
#include "utf8.h"

namespace rf::text {
namespace {

void check_token(std::string_view token, int64_t id, std::string_view where) {
  if (token.find_first_of("\r\n") != std::string_view::npos) {
    fail(where, "a token must not contain a line break, got one in token {}", id);
  }
  while (!token.empty()) {
    const Decoded decoded = decode_utf8(token);
    if (!decoded.valid) fail(where, "tokens must be UTF-8, got ill-formed bytes in line {}", id + 1);
    token.remove_prefix(static_cast<size_t>(decoded.length));
  }
}

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

}  // namespace

Vocabulary::Vocabulary(std::vector<std::string> tokens) : Vocabulary(std::move(tokens), "vocabulary") {}

Vocabulary::Vocabulary(std::vector<std::string> tokens, std::string_view where) : tokens_(std::move(tokens)) {
  if (tokens_.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    fail(where, "a vocabulary must have fewer than 2^31 tokens, got {}", tokens_.size());
  }
  ids_.reserve(tokens_.size());
  for (int64_t id = 0; id < size(); ++id) {
    const std::string& token = tokens_[static_cast<size_t>(id)];
    check_token(token, id, where);
    const auto [found, added] = ids_.try_emplace(token, static_cast<int32_t>(id));
    if (!added) {
      fail(where, "every token must occur once, got \"{}\" in lines {} and {}", token, found->second + 1, id + 1);
    }
  }
  int32_t* const special[] = {&special_.pad, &special_.unk, &special_.cls, &special_.sep, &special_.mask};
  for (size_t i = 0; i < kSpecialTokens.size(); ++i) {
    *special[i] = find(kSpecialTokens[i]);
    if (*special[i] < 0) {
      fail(where, "[PAD], [UNK], [CLS], [SEP] and [MASK] must be among the tokens, got {} tokens without {}", size(),
           kSpecialTokens[i]);
    }
  }
}

Vocabulary Vocabulary::load(const std::string& path) {
  return {split_lines(io::read_file(path)), path};
}

void Vocabulary::save(const std::string& path) const {
  std::string text;
  for (const std::string& token : tokens_) text.append(token).push_back('\n');
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

}  // namespace rf::text
