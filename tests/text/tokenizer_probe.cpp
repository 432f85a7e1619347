// For the Python tests: reads JSON lines {"text": "..."} or {"hex": "..."} (raw bytes) on stdin and writes one JSON
// line each. OPTIONS is JSON: {"pipeline", "lower", "strip_accents" (may be null), "tokenize_chinese_chars"}, all
// optional.
//   tokenizer_probe words OPTIONS         the normalised words (pipeline bert): {"words", "begin", "end", "replaced"},
//                                         offsets in characters
//   tokenizer_probe encode OPTIONS VOCAB  {"ids", "begin", "end", "byte_begin", "byte_end", "starts_word", "replaced"}
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "probe.h"
#include "rf/text/tokenizer.h"
#include "splitters/bert_splitter.h"

namespace {

using nlohmann::json;
using namespace rf::tests;

rf::text::TokenizerOptions read_options(const json& given) {
  rf::text::TokenizerOptions options;
  options.pipeline = rf::text::pipeline_of_name(given.value("pipeline", "bert"));
  options.letter_case = given.value("lower", true) ? rf::text::Case::kLower : rf::text::Case::kKeep;
  if (given.contains("strip_accents") && !given["strip_accents"].is_null()) {
    options.strip_accents = given["strip_accents"].get<bool>();
  }
  options.tokenize_chinese_chars = given.value("tokenize_chinese_chars", true);
  if (given.contains("dictionary")) options.dictionary = rf::text::Dictionary::load(given["dictionary"]);
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "words" && argc == 3) {
    const rf::text::TokenizerOptions options = read_options(json::parse(argv[2]));
    const bool lower = options.letter_case == rf::text::Case::kLower;
    rf::text::BertSplitter splitter({lower, options.strip_accents.value_or(lower), options.tokenize_chinese_chars});
    answer_lines([&](const json& line) { return split_words(splitter, read_text(line)); });
    return 0;
  }
  if (mode == "encode" && argc == 4) {
    const rf::text::Tokenizer tokenizer(rf::text::Vocabulary::load(argv[3]), read_options(json::parse(argv[2])));
    answer_lines([&](const json& line) {
      rf::text::Encoding out;
      tokenizer.encode(read_text(line), out);
      return to_json(out);
    });
    return 0;
  }
  std::cerr << "usage: tokenizer_probe words OPTIONS | encode OPTIONS VOCAB\n";
  return 2;
}
