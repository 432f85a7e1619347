// A tokenizer put together: a splitter gives words, a model cuts them into tokens.
#include "rf/text/tokenizer.h"

#include <filesystem>

#include "legacy_splitter.h"
#include "piece_trie.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "tokenizer_config.h"
#include "wordpiece.h"

namespace rf::text {
namespace {

void append_added(int32_t id, Encoding& out) {
  out.ids.push_back(id);
  for (std::vector<int32_t>* offsets : {&out.byte_begin, &out.byte_end, &out.char_begin, &out.char_end}) {
    offsets->push_back(0);
  }
  out.starts_word.push_back(1);
}

}  // namespace

void Encoding::clear() {
  for (std::vector<int32_t>* column : {&ids, &byte_begin, &byte_end, &char_begin, &char_end}) column->clear();
  starts_word.clear();
  replaced_bytes = 0;
}

Tokenizer::Tokenizer(Vocabulary vocabulary, TokenizerOptions options)
    : vocabulary_(std::move(vocabulary)), options_(options), trie_(std::make_shared<const PieceTrie>(vocabulary_)) {
  if (options_.max_word_chars < 1) {
    fail("wordpiece", "max_word_chars must be at least 1, got {}", options_.max_word_chars);
  }
}

Tokenizer Tokenizer::load(const std::string& model_dir) {
  const std::filesystem::path dir = model_dir;
  const std::string config = (dir / "tokenizer_config.json").string();
  const TokenizerOptions options = std::filesystem::exists(config) ? read_tokenizer_config(config) : TokenizerOptions{};
  return {Vocabulary::load((dir / "vocab.txt").string()), options};
}

void Tokenizer::save(const std::string& model_dir) const {
  const std::filesystem::path dir = model_dir;
  vocabulary_.save((dir / "vocab.txt").string());
  io::write_file((dir / "tokenizer_config.json").string(), format_tokenizer_config(options_));
}

void Tokenizer::encode(std::string_view text, Encoding& out) const {
  PieceWriter writer(*trie_, vocabulary_.special(), options_.max_word_chars, out);
  out.replaced_bytes += LegacySplitter(options_.letter_case).split(text, writer);
}

Encoding Tokenizer::encode_with_specials(std::string_view text) const {
  Encoding out;
  append_added(vocabulary_.special().cls, out);
  encode(text, out);
  append_added(vocabulary_.special().sep, out);
  return out;
}

std::string Tokenizer::decode(const std::vector<int32_t>& ids) const {
  const SpecialIds& special = vocabulary_.special();
  std::string text;
  for (const int32_t id : ids) {
    if (id == special.pad || id == special.cls || id == special.sep) continue;
    const std::string_view token = vocabulary_.token(id);
    const bool continues = token.starts_with("##");
    if (!continues && !text.empty()) text.push_back(' ');
    text.append(continues ? token.substr(2) : token);
  }
  return text;
}

}  // namespace rf::text
