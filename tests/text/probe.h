// What the probe programs of the Python tests share: JSON lines in, JSON lines out.
#pragma once

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rf/text/encoding.h"
#include "splitters/splitter.h"

namespace rf::tests {

// {"text": "..."} or {"hex": "..."} (raw bytes).
inline std::string read_text(const nlohmann::json& line) {
  if (line.contains("text")) return line["text"].get<std::string>();
  const auto hex = line["hex"].get<std::string>();
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

// {"words", "begin", "end", "replaced"}, offsets in characters.
inline nlohmann::json split_words(text::Splitter& splitter, const std::string& text) {
  class WordList : public text::WordSink {
   public:
    void take(const text::Word& word) override {
      const text::SourceSpan source = word.source();
      words.emplace_back(word.text);
      begin.push_back(source.char_begin);
      end.push_back(source.char_end);
    }
    std::vector<std::string> words;
    std::vector<int32_t> begin, end;
  };
  WordList list;
  const int64_t replaced = splitter.split(text, list);
  return {{"words", list.words}, {"begin", list.begin}, {"end", list.end}, {"replaced", replaced}};
}

inline nlohmann::json to_json(const text::Encoding& tokens) {
  return {{"ids", tokens.ids},
          {"begin", tokens.char_begin},
          {"end", tokens.char_end},
          {"byte_begin", tokens.byte_begin},
          {"byte_end", tokens.byte_end},
          {"starts_word", tokens.starts_word},
          {"replaced", tokens.replaced_bytes}};
}

// Answers each line of standard input.
template <typename Answer>
void answer_lines(Answer answer) {
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << answer(nlohmann::json::parse(line)).dump() << '\n';
  }
}

}  // namespace rf::tests
