// For the Python tests: reads JSON lines {"text": "..."} or {"hex": "..."} (raw bytes) on stdin and writes one JSON
// line each.
//   text_probe words lower|keep          the normalised words: {"words", "begin", "end", "replaced"}, offsets in
//   characters text_probe encode lower|keep VOCAB   {"ids", "begin", "end", "byte_begin", "byte_end", "starts_word",
//   "replaced"}
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "legacy_splitter.h"
#include "rf/text/tokenizer.h"
#include "rf/text/vocabulary_trainer.h"

namespace {

using nlohmann::json;

std::string read_text(const json& line) {
  if (line.contains("text")) return line["text"].get<std::string>();
  const auto hex = line["hex"].get<std::string>();
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

class WordList : public rf::text::WordSink {
 public:
  void take(const rf::text::Word& word) override {
    const rf::text::SourceSpan source = word.source(0, word.text.size());
    words.emplace_back(word.text);
    begin.push_back(source.char_begin);
    end.push_back(source.char_end);
  }
  std::vector<std::string> words;
  std::vector<int32_t> begin, end;
};

json split_words(const std::string& text, rf::text::Case letter_case) {
  WordList list;
  const int64_t replaced = rf::text::LegacySplitter(letter_case).split(text, list);
  return {{"words", list.words}, {"begin", list.begin}, {"end", list.end}, {"replaced", replaced}};
}

json encode(const rf::text::Tokenizer& tokenizer, const std::string& text) {
  rf::text::Encoding out;
  tokenizer.encode(text, out);
  return {{"ids", out.ids},
          {"begin", out.char_begin},
          {"end", out.char_end},
          {"byte_begin", out.byte_begin},
          {"byte_end", out.byte_end},
          {"starts_word", out.starts_word},
          {"replaced", out.replaced_bytes}};
}

json train(int64_t size, rf::text::Case letter_case) {
  rf::text::VocabularyTrainerOptions options;
  options.size = size;
  options.letter_case = letter_case;
  rf::text::VocabularyTrainer trainer(options);
  for (std::string line; std::getline(std::cin, line);) trainer.add(read_text(json::parse(line)));
  const rf::text::Vocabulary vocabulary = trainer.train();
  std::vector<std::string> tokens;
  for (int64_t id = 0; id < vocabulary.size(); ++id) tokens.push_back(vocabulary.token(id));
  return {{"tokens", tokens}};
}

}  // namespace

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  const std::string mode = argc > 1 ? argv[1] : "";
  const std::string letter_case = argc > 2 ? argv[2] : "";
  const bool known = (mode == "words" && argc == 3) || ((mode == "encode" || mode == "train") && argc == 4);
  if (!known || (letter_case != "lower" && letter_case != "keep")) {
    std::cerr << "usage: text_probe words lower|keep | encode lower|keep VOCAB | train lower|keep SIZE\n";
    return 2;
  }
  rf::text::TokenizerOptions options;
  options.pipeline = rf::text::Pipeline::kBertLegacy;
  options.letter_case = letter_case == "lower" ? rf::text::Case::kLower : rf::text::Case::kKeep;
  if (mode == "train") {
    std::cout << train(std::stoll(argv[3]), options.letter_case).dump() << '\n';
  } else if (mode == "words") {
    for (std::string line; std::getline(std::cin, line);) {
      std::cout << split_words(read_text(json::parse(line)), options.letter_case).dump() << '\n';
    }
  } else {
    const rf::text::Tokenizer tokenizer(rf::text::Vocabulary::load(argv[3]), options);
    for (std::string line; std::getline(std::cin, line);) {
      std::cout << encode(tokenizer, read_text(json::parse(line))).dump() << '\n';
    }
  }
  return 0;
}
