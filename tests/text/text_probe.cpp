// For the tests in tests/oracles: text_probe OPTIONS reads JSON lines on standard input and writes one JSON line for
// each. A text is {"text": "..."} or {"hex": "..."} (raw bytes). OPTIONS is a JSON object that names a tokenizer:
//   {"model": DIR, "dictionary": FILE}                  of a model directory; the dictionary is optional
//   {"vocab": FILE, "pipeline", "lower", "strip_accents", "tokenize_chinese_chars", "dictionary"}   all others optional
// Then a line is one of
//   text, with "specials": bool       {"ids", "begin", "end", "byte_begin", "byte_end", "starts_word", "replaced"}
//   {"ids": [...], "skip": bool}      {"text"}
//   {"save": DIR}                     {}
// With "words" a text gives its words instead, {"words", "begin", "end", "replaced"}. With "batch" a line is
// {"samples": [...], "options": {...}}: samples are ["text"] or ["text", "second text"], options the keys of
// transformers' tokenizer call; the answer is the list of rows, or {"error"}. Lines with the options of the line before
// go to the same encoder. Other uses:
//   {"segment": CACHE, "dictionary": FILE, "users": [...]}   the sum of frequencies, then the words of each JSON string
//   {"train": SIZE, "lower": bool}                           {"tokens"} of all texts
// An rf::Error is {"error": message}, written once.
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "pipelines/pipeline.h"
#include "rf/io/error.h"
#include "rf/io/utf8.h"
#include "rf/text/batch.h"
#include "rf/text/vocabulary_trainer.h"

namespace {

using nlohmann::json;
using namespace rf::text;

template <typename Answer>
void answer_lines(Answer answer) {
  for (std::string line; std::getline(std::cin, line);) std::cout << answer(json::parse(line)).dump() << '\n';
}

std::string read_text(const json& line) {
  if (line.contains("text")) return line["text"];
  const std::string hex = line["hex"];
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

TokenizerOptions read_options(const json& given) {
  TokenizerOptions options;
  options.pipeline = pipeline_of_name(given.value("pipeline", "bert"));
  options.letter_case = given.value("lower", true) ? Case::kLower : Case::kKeep;
  if (const json strip = given.value("strip_accents", json()); !strip.is_null()) options.strip_accents = strip;
  options.tokenize_chinese_chars = given.value("tokenize_chinese_chars", true);
  if (given.contains("dictionary")) options.dictionary = Dictionary::load(given["dictionary"]);
  return options;
}

Tokenizer open_tokenizer(const json& given) {
  if (given.contains("model")) return Tokenizer::load(given["model"], {.dictionary = given.value("dictionary", "")});
  return {Vocabulary::load(given["vocab"]), read_options(given)};
}

json answer(const Tokenizer& tokenizer, const json& line) {
  if (line.contains("save")) {
    tokenizer.save(line["save"]);
    return json::object();
  }
  if (line.contains("ids")) {
    const auto skip = line.value("skip", false) ? SkipSpecials::kYes : SkipSpecials::kNo;
    return {{"text", tokenizer.decode(line["ids"], skip)}};
  }
  Encoding out;
  if (line.value("specials", false)) {
    out = tokenizer.encode_with_specials(read_text(line));
  } else {
    tokenizer.encode(read_text(line), out);
  }
  return {{"ids", out.ids},
          {"begin", out.char_begin},
          {"end", out.char_end},
          {"byte_begin", out.byte_begin},
          {"byte_end", out.byte_end},
          {"starts_word", out.starts_word},
          {"replaced", out.replaced_bytes}};
}

class WordList : public WordSink {
 public:
  void take(const Word& word) override {
    words.emplace_back(word.text);
    begin.push_back(word.source().char_begin);
    end.push_back(word.source().char_end);
  }
  std::vector<std::string> words;
  std::vector<int32_t> begin, end;
};

void split_words(const json& given) {
  TokenizerOptions options = read_options(given);
  options.max_word_chars = 1 << 20;  // whole words
  const Vocabulary vocabulary({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"});
  const PieceTrie trie(vocabulary);
  const SplitterPtr splitter = options.pipeline.entry().make_splitter(options, vocabulary, trie);
  answer_lines([&](const json& line) -> json {
    WordList list;
    const int64_t replaced = splitter->split(read_text(line), list);
    return {{"words", list.words}, {"begin", list.begin}, {"end", list.end}, {"replaced", replaced}};
  });
}

BatchOptions batch_options(const json& given) {
  const std::map<std::string, Truncation> truncations = {{"none", Truncation::kNone},
                                                         {"longest_first", Truncation::kLongestFirst},
                                                         {"only_first", Truncation::kOnlyFirst},
                                                         {"only_second", Truncation::kOnlySecond}};
  const std::map<std::string, Padding> paddings = {
      {"none", Padding::kNone}, {"longest", Padding::kLongest}, {"max_length", Padding::kMaxLength}};
  const auto side = [&](const char* key) { return given.value(key, "right") == "left" ? Side::kLeft : Side::kRight; };
  return {.add_specials = given.value("add_special_tokens", true) ? AddSpecials::kYes : AddSpecials::kNo,
          .truncation = truncations.at(given.value("truncation", "none")),
          .truncation_side = side("truncation_side"),
          .overflow = given.value("return_overflowing_tokens", false) ? Overflow::kRows : Overflow::kDropped,
          .stride = given.value("stride", int64_t{0}),
          .max_length = given.value("max_length", int64_t{0}),
          .padding = paddings.at(given.value("padding", "none")),
          .padding_side = side("padding_side"),
          .pad_to_multiple_of = given.value("pad_to_multiple_of", int64_t{1}),
          .threads = given.value("threads", 1)};
}

// The encoder of the last line, and its options.
struct LastEncoder {
  json options;
  std::optional<BatchEncoder> encoder;
};

json encode_batch(const Tokenizer& tokenizer, const json& line, LastEncoder& last) try {
  const std::vector<std::vector<std::string>> texts = line["samples"];
  std::vector<TextPair> samples;
  for (const std::vector<std::string>& text : texts) {
    samples.push_back({text[0], text.size() > 1 ? std::optional<std::string_view>(text[1]) : std::nullopt});
  }
  if (!last.encoder || last.options != line["options"]) {
    last.encoder.reset();
    last.encoder.emplace(tokenizer, batch_options(last.options = line["options"]));
  }
  json rows = json::array();
  for (const Row& row : last.encoder->encode(samples)) {
    rows.push_back({{"ids", row.tokens.ids},
                    {"begin", row.tokens.char_begin},
                    {"end", row.tokens.char_end},
                    {"types", row.types},
                    {"mask", row.mask},
                    {"text_index", row.text_index},
                    {"sample", row.sample}});
  }
  return rows;
} catch (const rf::Error& error) {
  return {{"error", error.what()}};
}

void segment(const json& given) {
  const auto dictionary = Dictionary::load(given["dictionary"], given.value("users", std::vector<std::string>()),
                                           {given["segment"].get<std::string>()});
  std::cout << dictionary->total() << '\n';
  Segmenter segmenter(dictionary);
  std::vector<uint32_t> ends;
  answer_lines([&](const json& line) -> json {
    std::u32string chars;
    const std::string text = line;
    for (std::string_view rest = text; !rest.empty();) chars.push_back(rf::take_utf8(rest).code);
    segmenter.cut(chars, ends);
    std::vector<std::string> words(ends.size());
    size_t at = 0;
    for (size_t word = 0; word < ends.size(); ++word) {
      for (; at < ends[word]; ++at) rf::append_utf8(chars[at], words[word]);
    }
    return words;
  });
}

json train(const json& given) {
  VocabularyTrainer trainer({.size = given["train"], .letter_case = read_options(given).letter_case});
  for (std::string line; std::getline(std::cin, line);) trainer.add(read_text(json::parse(line)));
  const Vocabulary vocabulary = trainer.train();
  json tokens = json::array();
  for (int64_t id = 0; id < vocabulary.size(); ++id) tokens.push_back(vocabulary.token(id));
  return {{"tokens", tokens}};
}

void run(const json& given) {
  if (given.contains("segment")) return segment(given);
  if (given.contains("words")) return split_words(given);
  if (given.contains("train")) {
    std::cout << train(given).dump() << '\n';
    return;
  }
  const Tokenizer tokenizer = open_tokenizer(given);
  LastEncoder last;
  answer_lines([&](const json& line) {
    return given.contains("batch") ? encode_batch(tokenizer, line, last) : answer(tokenizer, line);
  });
}

}  // namespace

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  if (argc != 2) return 2;
  try {
    run(json::parse(argv[1]));
  } catch (const rf::Error& error) {
    std::cout << json{{"error", error.what()}}.dump() << '\n';
  }
  return 0;
}
