// For tests/oracles/test_batch.py: batch_probe VOCAB OPTIONS reads one JSON line a sample, ["text"] or ["text",
// "second text"], and writes one JSON line a row, or {"error"}. OPTIONS is a JSON object with the keys of
// transformers' tokenizer call.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rf/io/error.h"
#include "rf/text/batch.h"

namespace {

using nlohmann::json;
using namespace rf::text;

BatchOptions read_options(const json& given) {
  BatchOptions options;
  const std::map<std::string, Truncation> truncations = {{"longest_first", Truncation::kLongestFirst},
                                                         {"only_first", Truncation::kOnlyFirst},
                                                         {"only_second", Truncation::kOnlySecond}};
  const std::map<std::string, Padding> paddings = {{"longest", Padding::kLongest}, {"max_length", Padding::kMaxLength}};
  if (given.contains("truncation")) options.truncation = truncations.at(given["truncation"]);
  if (given.contains("padding")) options.padding = paddings.at(given["padding"]);
  options.max_length = given.value("max_length", int64_t{0});
  options.stride = given.value("stride", int64_t{0});
  options.pad_to_multiple_of = given.value("pad_to_multiple_of", int64_t{1});
  if (given.value("return_overflowing_tokens", false)) options.overflow = Overflow::kRows;
  if (!given.value("add_special_tokens", true)) options.add_specials = AddSpecials::kNo;
  if (given.value("truncation_side", "right") == "left") options.truncation_side = Side::kLeft;
  if (given.value("padding_side", "right") == "left") options.padding_side = Side::kLeft;
  options.threads = given.value("threads", 1);
  return options;
}

}  // namespace

int main(int, char** argv) {
  const Tokenizer tokenizer(Vocabulary::load(argv[1]), {});
  const BatchOptions options = read_options(json::parse(argv[2]));
  std::vector<std::vector<std::string>> texts;
  for (std::string line; std::getline(std::cin, line);) texts.push_back(json::parse(line));
  std::vector<TextPair> samples;
  for (const std::vector<std::string>& text : texts) {
    samples.push_back({text[0], text.size() > 1 ? std::optional<std::string_view>(text[1]) : std::nullopt});
  }
  try {
    BatchEncoder encoder(tokenizer, options);
    for (const Row& row : encoder.encode(samples)) {
      std::cout << json{{"ids", row.tokens.ids},      {"begin", row.tokens.char_begin},
                        {"end", row.tokens.char_end}, {"types", row.types},
                        {"mask", row.mask},           {"text_index", row.text_index},
                        {"sample", row.sample}}
                       .dump()
                << '\n';
    }
  } catch (const rf::Error& error) {
    std::cout << json{{"error", error.what()}}.dump() << '\n';
  }
  return 0;
}
