// For the Python tests: model_probe DIR [DICTIONARY] loads the tokenizer of a model directory and answers JSON lines on
// stdin with one JSON line each:
//   {"text": ..., "specials": bool}  {"ids", "begin", "end", "byte_begin", "byte_end", "starts_word", "replaced"}
//   {"ids": [...], "skip": bool}     {"text"}
//   {"save": DIR}                    {}
// When the directory is refused the answer to everything is {"error"}, written once.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "probe.h"
#include "rf/io/error.h"
#include "rf/text/tokenizer.h"

namespace {

using nlohmann::json;
using namespace rf::tests;

json encode(const rf::text::Tokenizer& tokenizer, const json& line) {
  rf::text::Encoding out;
  if (line.value("specials", false)) {
    out = tokenizer.encode_with_specials(read_text(line));
  } else {
    tokenizer.encode(read_text(line), out);
  }
  return to_json(out);
}

json answer(const rf::text::Tokenizer& tokenizer, const json& line) {
  if (line.contains("save")) {
    tokenizer.save(line["save"].get<std::string>());
    return json::object();
  }
  if (line.contains("ids")) {
    const auto skip = line.value("skip", false) ? rf::text::SkipSpecials::kYes : rf::text::SkipSpecials::kNo;
    return {{"text", tokenizer.decode(line["ids"].get<std::vector<int32_t>>(), skip)}};
  }
  return encode(tokenizer, line);
}

}  // namespace

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  if (argc != 2 && argc != 3) {
    std::cerr << "usage: model_probe DIR [DICTIONARY]\n";
    return 2;
  }
  try {
    rf::text::LoadOptions options;
    if (argc == 3) options.dictionary = argv[2];
    const auto tokenizer = rf::text::Tokenizer::load(argv[1], options);
    answer_lines([&](const json& line) { return answer(tokenizer, line); });
  } catch (const rf::Error& error) {
    std::cout << json{{"error", error.what()}}.dump() << '\n';
  }
  return 0;
}
