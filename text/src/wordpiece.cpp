// WordPiece: every word is cut, from its front, into the longest pieces that the vocabulary has; a word that cannot be
// cut whole is [UNK].
#include "rf/text/wordpiece.h"

#include <filesystem>

#include "piece_trie.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "tokenizer_config.h"
#include "word_splitter.h"

namespace rf::text {
namespace {

int32_t special_id(const SpecialIds& ids, Special special) {
  switch (special) {
    case Special::kPad:
      return ids.pad;
    case Special::kCls:
      return ids.cls;
    case Special::kSep:
      return ids.sep;
    case Special::kMask:
      return ids.mask;
    default:
      return ids.unk;
  }
}

// Cuts words into pieces and appends them to an encoding.
class PieceWriter : public WordSink {
 public:
  PieceWriter(const PieceTrie& trie, const SpecialIds& special, int max_word_chars, Encoding& out)
      : trie_(trie), special_(special), max_word_chars_(max_word_chars), out_(out) {}

  void take(const Word& word) override {
    if (word.special != Special::kNone) {
      append(special_id(special_, word.special), word.source(0, word.text.size()), true);
    } else if (word.chars > max_word_chars_ || !cut(word.text)) {
      append(special_.unk, word.source(0, word.text.size()), true);
    } else {
      size_t first = 0;
      for (const PieceTrie::Match& piece : pieces_) {
        append(piece.id, word.source(first, first + piece.length), first == 0);
        first += piece.length;
      }
    }
  }

 private:
  // Fills pieces_; false when a part of the word begins with no piece.
  bool cut(std::string_view text) {
    pieces_.clear();
    PieceTrie::Root root = PieceTrie::kWordStart;
    while (!text.empty()) {
      const PieceTrie::Match match = trie_.longest(text, root);
      if (match.id < 0) return false;
      pieces_.push_back(match);
      text.remove_prefix(match.length);
      root = PieceTrie::kContinuation;
    }
    return true;
  }

  void append(int32_t id, const SourceSpan& source, bool starts_word) {
    out_.ids.push_back(id);
    out_.byte_begin.push_back(source.byte_begin);
    out_.byte_end.push_back(source.byte_end);
    out_.char_begin.push_back(source.char_begin);
    out_.char_end.push_back(source.char_end);
    out_.starts_word.push_back(starts_word ? 1 : 0);
  }

  const PieceTrie& trie_;
  const SpecialIds& special_;
  const int64_t max_word_chars_;
  Encoding& out_;
  std::vector<PieceTrie::Match> pieces_;
};

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

WordpieceTokenizer::WordpieceTokenizer(Vocabulary vocabulary, WordpieceOptions options)
    : vocabulary_(std::move(vocabulary)), options_(options), trie_(std::make_shared<const PieceTrie>(vocabulary_)) {
  if (options_.max_word_chars < 1) {
    fail("wordpiece", "max_word_chars must be at least 1, got {}", options_.max_word_chars);
  }
}

WordpieceTokenizer WordpieceTokenizer::load(const std::string& model_dir) {
  const std::filesystem::path dir = model_dir;
  const std::string config = (dir / "tokenizer_config.json").string();
  const WordpieceOptions options = std::filesystem::exists(config) ? read_tokenizer_config(config) : WordpieceOptions{};
  return {Vocabulary::load((dir / "vocab.txt").string()), options};
}

void WordpieceTokenizer::save(const std::string& model_dir) const {
  const std::filesystem::path dir = model_dir;
  vocabulary_.save((dir / "vocab.txt").string());
  io::write_file((dir / "tokenizer_config.json").string(), format_tokenizer_config(options_));
}

void WordpieceTokenizer::encode(std::string_view text, Encoding& out) const {
  PieceWriter writer(*trie_, vocabulary_.special(), options_.max_word_chars, out);
  out.replaced_bytes += WordSplitter(options_.letter_case).split(text, writer);
}

Encoding WordpieceTokenizer::encode_with_specials(std::string_view text) const {
  Encoding out;
  append_added(vocabulary_.special().cls, out);
  encode(text, out);
  append_added(vocabulary_.special().sep, out);
  return out;
}

std::string WordpieceTokenizer::decode(const std::vector<int32_t>& ids) const {
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
