// A tokenizer put together: a splitter gives words, a model cuts them into tokens.
#include "rf/text/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include "added_tokens.h"
#include "bert_splitter.h"
#include "legacy_splitter.h"
#include "piece_trie.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "roformer_splitter.h"
#include "tokenizer_config.h"
#include "utf8.h"
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

// The special tokens of the vocabulary, save those that the caller describes.
std::vector<AddedToken> with_specials(std::vector<AddedToken> added, const Vocabulary& vocabulary) {
  for (AddedToken& special : special_tokens(vocabulary)) {
    const bool described =
        std::ranges::any_of(added, [&](const AddedToken& t) { return t.content == special.content; });
    if (!described) added.push_back(std::move(special));
  }
  return added;
}

std::unique_ptr<Splitter> make_splitter(const TokenizerOptions& options, const PieceTrie& trie) {
  const bool lower_case = options.letter_case == Case::kLower;
  const bool strip_accents = options.strip_accents.value_or(lower_case);
  switch (options.pipeline) {
    case Pipeline::kBert:
      return std::make_unique<BertSplitter>(
          BertSplitterOptions{lower_case, strip_accents, options.tokenize_chinese_chars});
    case Pipeline::kBertLegacy:
      return std::make_unique<LegacySplitter>(options.letter_case);
    case Pipeline::kRoformer:
      return std::make_unique<RoformerSplitter>(lower_case, strip_accents, trie, options.dictionary);
    default:
      fail("tokenizer", "pipeline must be one that this program has, got {}", name(options.pipeline));
  }
}

// Characters between two bytes of the text; negative when the second lies before the first.
int32_t count_characters(std::string_view text, size_t from, size_t to) {
  if (to < from) return -count_characters(text, to, from);
  int32_t count = 0;
  for (; from < to; ++count) from += static_cast<size_t>(decode_utf8(text.substr(from)).length);
  return count;
}

}  // namespace

void Encoding::clear() {
  for (std::vector<int32_t>* column : {&ids, &byte_begin, &byte_end, &char_begin, &char_end}) column->clear();
  starts_word.clear();
  replaced_bytes = 0;
}

Tokenizer::Tokenizer(Vocabulary vocabulary, TokenizerOptions options, std::vector<AddedToken> added)
    : vocabulary_(std::move(vocabulary)),
      options_(options),
      added_(std::make_shared<const AddedTokens>(with_specials(std::move(added), vocabulary_), vocabulary_)),
      trie_(std::make_shared<const PieceTrie>(vocabulary_)) {
  if (options_.max_word_chars < 1) {
    fail("wordpiece", "max_word_chars must be at least 1, got {}", options_.max_word_chars);
  }
  const bool segments = options_.pipeline == Pipeline::kRoformer || options_.pipeline == Pipeline::kWobert;
  if (segments && options_.dictionary == nullptr) {
    fail("tokenizer", "pipeline {} must have a dictionary, got none", name(options_.pipeline));
  }
}

const std::vector<AddedToken>& Tokenizer::added_tokens() const {
  return added_->tokens();
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
  if (text.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    fail("tokenize", "a text must be smaller than 2^31 bytes, got {}", text.size());
  }
  PieceWriter writer(*trie_, vocabulary_.special(), options_.max_word_chars, out);
  const std::unique_ptr<Splitter> splitter = make_splitter(options_, *trie_);
  std::vector<Section> sections;
  added_->raw().split(text, sections);
  size_t byte = 0;
  int32_t character = 0;  // of that byte
  for (const Section& section : sections) {
    if (section.begin != byte) character += count_characters(text, byte, section.begin);
    byte = section.begin;
    const auto begin = static_cast<int32_t>(section.begin), end = static_cast<int32_t>(section.end);
    if (section.token == nullptr) {
      writer.set_origin(begin, character);
      out.replaced_bytes += splitter->split(text.substr(section.begin, section.end - section.begin), writer);
    } else {
      writer.take_added(section.token->id,
                        {begin, end, character, character + count_characters(text, section.begin, section.end)});
    }
  }
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
