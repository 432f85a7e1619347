// Converts text to token ids with the position of each token in the text. Ids and offsets equal the published
// tokenizers that Pipeline names. Invalid UTF-8 is replaced by U+FFFD and counted, and is never an error.
//
// kBert and kRoformer equal `transformers` 5, which uses the library `tokenizers`; kBertLegacy is BERT as written in
// Python (bert.tokenization_bert_legacy, Unicode 14.0). The two differ in five rare points: `tokenizers` keeps
// unassigned code points, which Python drops; it does not apply NFC, which matters where accents stay; it lower-cases
// without the final-sigma rule; its lists of marks and format characters come from another Unicode version; and it does
// not put spaces around U+2B820..U+2B91F. With kBertLegacy, offsets equal the offsets of `tokenizers` for equal words,
// except that they follow a combining mark that normalisation moves.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rf/text/segmenter.h"
#include "rf/text/vocabulary.h"

namespace rf::text {

class AddedTokens;
class BytePairModel;
class DecodingStream;
class PieceTrie;
class SplitSteps;
class UnigramModel;

enum class Case { kLower, kKeep };

// A token that is matched in the text before normalisation, or right after it, and never split: special tokens, and
// words that a user added to a vocabulary. The fields equal `tokenizers`' AddedToken.
struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool special = false;      // omitted by decode() if special tokens are skipped
  bool single_word = false;  // not inside a longer word
  bool lstrip = false;       // includes the white space before it
  bool rstrip = false;       // includes the white space after it
  bool normalized = false;   // searched in the normalised text, in its own normalised form
};

// The tokens of a text and their positions in it.
struct Encoding {
  std::vector<int32_t> ids;
  std::vector<int32_t> byte_begin, byte_end;  // into the original text, half-open; [0, 0) for special tokens added
  std::vector<int32_t> char_begin, char_end;  // the same in code points, as in `tokenizers`
  std::vector<uint8_t> starts_word;           // 1 where a token begins a word (no "##" continuation)
  int64_t replaced_bytes = 0;                 // invalid UTF-8 sequences replaced

  size_t size() const { return ids.size(); }
  void clear();
  void reserve(size_t tokens);
  void resize(size_t tokens);
  void append(const Encoding& other, size_t begin, size_t end);  // its tokens begin..end-1
  void append_special(int32_t id);                               // a token without text
};

// How texts and special tokens are combined: "[CLS] A [SEP]", "[CLS] A [SEP] B [SEP]" and the forms of other models.
struct SequenceTemplate {
  enum class Part : uint8_t { kFirst, kSecond, kSpecial };
  struct Piece {
    Part part;
    int32_t id = 0;    // of a special token
    uint8_t type = 0;  // token type of this piece
    bool operator==(const Piece&) const = default;
  };
  std::vector<Piece> single;  // for one text
  std::vector<Piece> pair;    // for two texts; empty: the model does not support pairs
  bool operator==(const SequenceTemplate&) const = default;
};

// BERT's: types 0 for [CLS] A [SEP] and 1 for B [SEP].
SequenceTemplate bert_template(int32_t cls, int32_t sep);
// RoBERTa's: <s> A </s> </s> B </s>, all types 0.
SequenceTemplate roberta_template(int32_t cls, int32_t sep);
// No special tokens; types 0 for A and 1 for B.
SequenceTemplate plain_template();

struct PipelineEntry;  // text/src/pipelines/pipeline.h

// The published tokenizer whose steps are followed: a line of the table in text/src/pipelines/table.cpp. Only the
// pipelines that code refers to have constants.
class Pipeline {
 public:
  static const Pipeline kBert;          // transformers' BertTokenizer, on the library `tokenizers` (spec R-TOK-04)
  static const Pipeline kBertLegacy;    // transformers' BertTokenizerLegacy, Python's Unicode rules (spec R-TOK-04)
  static const Pipeline kRoformer;      // transformers' RoFormerTokenizer: words by jieba, no splitting at punctuation
                                        // (spec R-TOK-01)
  static const Pipeline kWobert;        // the original WoBERT tokenizer: words by jieba, then BERT's (spec R-TOK-03)
  static const Pipeline kByteLevelBpe;  // GPT-2's: byte pair encoding over UTF-8 bytes
  static const Pipeline kByteFallbackBpe;  // SentencePiece's: over characters, with "▁" for spaces
  static const Pipeline kUnigram;          // SentencePiece's most likely tokens

  explicit constexpr Pipeline(const PipelineEntry& (*entry)()) : entry_(entry) {}
  const PipelineEntry& entry() const { return entry_(); }
  bool segments_words() const;   // by jieba: requires a dictionary
  bool has_word_pieces() const;  // WordPiece, not byte pairs
  bool operator==(const Pipeline&) const = default;

 private:
  const PipelineEntry& (*entry_)();
};
std::span<const Pipeline> all_pipelines();
// On the command line and in messages: "bert", "bert-legacy", "roformer", "wobert", "byte-level-bpe",
// "byte-fallback-bpe", "unigram", "esm".
std::string_view name(Pipeline pipeline);
Pipeline pipeline_of_name(std::string_view name);                // throws Error for another name
std::string segmenting_pipelines(std::string_view conjunction);  // "roformer or wobert"

// A step that cuts a text into parts, which the next step cuts further.
struct SplitStep {
  enum class Kind : uint8_t {
    kExpression,       // the matches of an expression (text/src/splitters/expression.h), and the text between them
    kMatches,          // only the matches; the text between them is omitted
    kDigits,           // each digit, and the text between digits
    kContiguousDigits  // runs of digits, and the text between them
  };
  Kind kind = Kind::kExpression;
  std::string expression = {};
  bool operator==(const SplitStep&) const = default;
};

// Options of Pipeline::kByteLevelBpe; the names come from tokenizer.json.
struct ByteLevelOptions {
  bool nfc = false;                     // normalise to NFC first
  bool add_prefix_space = false;        // add a space to the front of a text that lacks it
  std::vector<SplitStep> splits = {};   // cut into parts first; without add_prefix_space
  bool use_regex = true;                // cut into words by GPT-2's expression
  bool ignore_merges = false;           // a word that is a token is not split, whatever the merges
  bool trim_offsets = false;            // offsets of tokens exclude white space; kBert: only offsets of added tokens
  bool trim_keeps_first_space = false;  // except the space that add_prefix_space added to the first token
};

// Options of Pipeline::kByteFallbackBpe. Spaces become "▁".
struct ByteFallbackOptions {
  enum class Prefix : uint8_t {
    kNever,
    kFirst,   // in front of a text that does not begin with "▁"
    kAlways,  // the same in front of each part between added tokens
    kEven     // in front of each part, even if it begins with "▁"
  };
  Prefix prefix = Prefix::kNever;  // a "▁"
  bool in_normalizer = true;       // before `normalized` added tokens are searched (normalizers Prepend and Replace),
                                   // else after that (pre-tokenizer Metaspace)
  bool splits = false;             // each "▁" begins a word
  bool byte_fallback = true;       // characters without a token become their bytes <0xNN>, else the unk_token
  bool fuse_unk = false;           // one unk_token for characters that follow each other
  bool ignore_merges = false;      // a word (without `splits`, a part) that is a token is not split
  bool operator==(const ByteFallbackOptions&) const = default;
};

// A normalizer of tokenizer.json.
struct NormalizerStep {
  enum class Kind : uint8_t {
    kPrecompiled,        // by the character map of a SentencePiece model: `text` has its bytes
    kReplace,            // each `text` by `content`
    kReplaceExpression,  // each match of the expression `text` by `content`
    kStrip,              // white space at the ends
    kPrepend,            // `text` in front
    kNfc,
    kNfd,
    kNfkc,
    kNfkd,
    kNmt,  // control characters removed, other white space to spaces
    kLowercase,
    kStripAccents
  };
  Kind kind = Kind::kNfc;
  std::string text = {}, content = {};
  bool left = false, right = false;  // of kStrip
  bool operator==(const NormalizerStep&) const = default;
};

// Options of Pipeline::kUnigram.
struct UnigramOptions {
  std::vector<double> scores = {};  // of the model's tokens, by id
  int32_t unk = -1;                 // the token of unknown characters
  bool byte_fallback = false;       // characters without a token become their bytes <0xNN>
  std::vector<NormalizerStep> normalizers = {};
  bool split_spaces = false;       // WhitespaceSplit: white space separates words and is left out
  bool split_punctuation = false;  // Punctuation: each character is a word
  // Metaspace
  ByteFallbackOptions::Prefix prefix = ByteFallbackOptions::Prefix::kAlways;  // not kEven
  bool splits = true;                                                         // each "▁" begins a word
  bool operator==(const UnigramOptions&) const = default;
};

// Two tokens, in the byte alphabet, that are merged into a third; in order of rank.
using Merge = std::pair<std::string, std::string>;

// Tokens back to text, as tokenizer.json and tokenizer_config.json name it.
struct DecodingOptions {
  enum class Join : uint8_t {
    kWordPieces,  // spaces between words, "##" pieces without one
    kBytes,       // tokens in the byte alphabet
    kSpaces,      // spaces between all tokens
    kMetaspace,   // "▁" is a space; left out in the first token
    kFallback     // "▁" is a space, and <0xNN> are bytes: each byte of a run that is not UTF-8 is U+FFFD
  };
  Join join = Join::kWordPieces;
  bool cleanup = true;                        // of word pieces: no space before punctuation, token by token
  bool clean_up_tokenization_spaces = false;  // the same over the whole text, as in `transformers`
  int strip_left = 0;                         // with kFallback: this many spaces at the front are left out
};

struct TokenizerOptions {
  Pipeline pipeline = Pipeline::kBert;
  Case letter_case = Case::kLower;
  std::optional<bool> strip_accents{};                     // absent: with kLower only
  bool tokenize_chinese_chars = true;                      // kBert: each CJK character is a word
  int max_word_chars = 100;                                // longer words become [UNK]
  std::shared_ptr<const Dictionary> dictionary = nullptr;  // required by kRoformer and kWobert
  ByteLevelOptions byte_level{};
  ByteFallbackOptions byte_fallback{};
  std::shared_ptr<const UnigramOptions> unigram = nullptr;  // required by kUnigram
  DecodingOptions decoding{};
};

struct TokenizerParts {
  Vocabulary vocabulary;
  TokenizerOptions options;
  std::vector<AddedToken> added;  // in addition to the vocabulary's special tokens, or repeated with flags
  std::vector<Merge> merges;      // of kByteLevelBpe and kByteFallbackBpe
  std::optional<SequenceTemplate> sequence_template = {};  // absent: BERT's, or bare texts without [CLS] and [SEP]
};

struct LoadOptions {
  std::string dictionary = {};                      // jieba's; empty: the result of find_dictionary
  std::vector<std::string> user_dictionaries = {};  // in jieba's format; empty: user_dict.txt of the model directory
  std::optional<Pipeline> pipeline = {};            // another one over the same word pieces
};

// Throws Error if dictionaries are given for a pipeline that does not segment words.
void check_dictionaries(const LoadOptions& options, Pipeline pipeline);

// The dictionary for these options and a model directory ("": none). Throws the errors of Dictionary::load and
// find_dictionary.
std::shared_ptr<const Dictionary> load_dictionary(const std::string& model_dir, const LoadOptions& options);

enum class SkipSpecials { kNo, kYes };

// A text that further tokens may change by completing the last character or removing a space before punctuation.
struct DecodedText {
  std::string text;
  size_t settled = 0;  // final bytes at the front, whatever tokens follow; whole characters
};

class Tokenizer {
 public:
  // Throws Error for options that contradict each other or the vocabulary.
  Tokenizer(Vocabulary vocabulary, TokenizerOptions options);
  explicit Tokenizer(TokenizerParts parts);
  // Reads the files of `transformers`: tokenizer.json, tokenizer_config.json, special_tokens_map.json,
  // added_tokens.json, vocab.txt, vocab.json and merges.txt, SentencePiece's model (docs/tokenizers.md describes which
  // files are used). Throws Error, naming file and key, for settings that are not supported, and if no dictionary is
  // given and the dictionary that was found differs from the one recorded in the directory. A GGUF file stores its
  // tokenizer in its keys: byte-level BPE, WordPiece, or a vocabulary of SentencePiece (tokenizer.ggml.*).
  static Tokenizer load(const std::string& model_dir, const LoadOptions& options = {});
  // The same with tokens of the vocabulary as special ones: matched in the text before normalisation.
  Tokenizer with_special(const std::vector<std::string>& tokens) const;
  // Writes tokenizer.json and tokenizer_config.json, vocab.txt for WordPiece, and save_dictionary's files.
  void save(const std::string& model_dir) const;
  // The names of the files that save() writes, without the dictionary's.
  std::vector<std::string> saved_files() const;
  // Writes the dictionary to a directory with this tokenizer's other files: the files of Dictionary::save, and the
  // dictionary's hash in tokenizer_config.json. Does nothing for a tokenizer without a dictionary.
  void save_dictionary(const std::string& model_dir) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }
  const TokenizerOptions& options() const { return options_; }
  const std::vector<AddedToken>& added_tokens() const;  // by id
  const SequenceTemplate& sequence_template() const { return template_; }
  const std::vector<Merge>& merges() const;  // of BPE

  // Appends to `out`, whose columns must have equal lengths. Added tokens, including [MASK], [SEP] and so on, are
  // matched first and never split. Does not add special tokens. Thread-safe.
  void encode(std::string_view text, Encoding& out) const;
  // The same for the first `max_tokens` tokens; all if the text has fewer. The text is read only up to the word of the
  // last token, or slightly further, so time and memory do not grow with the rest; searching the rest for added tokens
  // only takes time. With `max_tokens` tokens, only ill-formed sequences before the end of the last token are counted.
  void encode_first(std::string_view text, size_t max_tokens, Encoding& out) const;
  // With the special tokens of sequence_template().single, for example [CLS] text [SEP].
  Encoding encode_with_specials(std::string_view text) const;
  // The text of the tokens, as `transformers`' decode(ids, skip_special_tokens=...). Throws Error for an id that the
  // vocabulary does not have.
  std::string decode(const std::vector<int32_t>& ids, SkipSpecials skip = SkipSpecials::kNo) const;
  // The bytes that a token adds after other tokens, without clean_up_tokenization_spaces; nullopt: it is special and
  // adds nothing, or its bytes depend on the tokens before it (Join::kWordPieces and kSpaces).
  std::optional<std::string> bytes_of(int32_t id) const;
  // DecodingStream (decoding_stream.h) gives the same for a stream of tokens.
  DecodedText decode_beginning(const std::vector<int32_t>& ids, SkipSpecials skip) const;

 private:
  friend class DecodingStream;
  // The text of a token; nullopt if the token is omitted.
  std::optional<std::string_view> shown(int32_t id, SkipSpecials skip) const;
  void append_first(std::string_view text, size_t max_tokens, Encoding& out) const;

  uint64_t serial_;  // number of this tokenizer in the process; copies share it
  Vocabulary vocabulary_;
  TokenizerOptions options_;
  std::shared_ptr<const AddedTokens> added_;         // immutable, shared by copies, as is the next
  std::shared_ptr<const PieceTrie> trie_;            // null for BPE
  std::shared_ptr<const BytePairModel> byte_pairs_;  // null for the others, as is the next
  std::shared_ptr<const SplitSteps> split_steps_;    // null for byte-fallback BPE
  std::shared_ptr<const UnigramModel> unigram_;      // null for the others
  std::shared_ptr<const std::vector<Merge>> merges_;
  SequenceTemplate template_;
};

// A tokenizer of bytes, without training: the id of a byte is its value, and the five special tokens follow from 256
// on. It is byte-level BPE without merges, so other programs can open its files.
Tokenizer byte_tokenizer();

// The files that a tokenizer may have.
inline constexpr std::string_view kTokenizerFiles[] = {"tokenizer.json",      "tokenizer_config.json",
                                                       "vocab.txt",           "special_tokens_map.json",
                                                       "added_tokens.json",   "vocab.json",
                                                       "merges.txt",          kDictionaryFile,
                                                       kUserDictionaryFile,   "tokenizer.model",
                                                       "spiece.model",        "sentencepiece.bpe.model",
                                                       "spm.model",           "tekken.json",
                                                       "qwen.tiktoken",       "cl100k_base.tiktoken",
                                                       "o200k_base.tiktoken", "r50k_base.tiktoken"};

// The vocabulary of the tokenizer in a model directory, for callers that already have tokens; does not require a
// dictionary.
Vocabulary load_vocabulary(const std::string& model_dir);

}  // namespace rf::text
