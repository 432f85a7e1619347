// For the Python tests: reads JSON lines {"text": "..."} or {"hex": "..."} (raw bytes) on stdin and writes one JSON
// line each. OPTIONS is JSON: {"pipeline", "lower", "strip_accents" (may be null), "tokenize_chinese_chars"}, all
// optional.
//   tokenizer_probe words OPTIONS         the normalised words (pipeline bert): {"words", "begin", "end", "replaced"},
//                                         offsets in characters
//   tokenizer_probe encode OPTIONS VOCAB  {"ids", "begin", "end", "byte_begin", "byte_end", "starts_word", "replaced"}
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "bert_splitter.h"
#include "rf/text/tokenizer.h"

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

json split_words(const std::string& text, const rf::text::TokenizerOptions& options) {
  WordList list;
  const bool lower = options.letter_case == rf::text::Case::kLower;
  rf::text::BertSplitter splitter({lower, options.strip_accents.value_or(lower), options.tokenize_chinese_chars});
  const int64_t replaced = splitter.split(text, list);
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

template <typename Answer>
int answer_lines(Answer answer) {
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << answer(read_text(json::parse(line))).dump() << '\n';
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "words" && argc == 3) {
    const rf::text::TokenizerOptions options = read_options(json::parse(argv[2]));
    return answer_lines([&options](const std::string& text) { return split_words(text, options); });
  }
  if (mode == "encode" && argc == 4) {
    const rf::text::Tokenizer tokenizer(rf::text::Vocabulary::load(argv[3]), read_options(json::parse(argv[2])));
    return answer_lines([&tokenizer](const std::string& text) { return encode(tokenizer, text); });
  }
  std::cerr << "usage: tokenizer_probe words OPTIONS | encode OPTIONS VOCAB\n";
  return 2;
}
