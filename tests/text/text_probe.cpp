// For the Python tests: reads JSON lines {"text": "..."} or {"hex": "..."} (raw bytes) on stdin and writes one JSON
// line each.
//   text_probe words lower|keep          the normalised words: {"words", "begin", "end", "replaced"}, offsets in
//   characters text_probe encode lower|keep VOCAB   {"ids", "begin", "end", "byte_begin", "byte_end", "starts_word",
//   "replaced"}
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "probe.h"
#include "rf/text/tokenizer.h"
#include "rf/text/vocabulary_trainer.h"
#include "splitters/legacy_splitter.h"

namespace {

using nlohmann::json;
using namespace rf::tests;

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
    rf::text::LegacySplitter splitter(options.letter_case);
    answer_lines([&](const json& line) { return split_words(splitter, read_text(line)); });
  } else {
    const rf::text::Tokenizer tokenizer(rf::text::Vocabulary::load(argv[3]), options);
    answer_lines([&](const json& line) {
      rf::text::Encoding out;
      tokenizer.encode(read_text(line), out);
      return to_json(out);
    });
  }
  return 0;
}
