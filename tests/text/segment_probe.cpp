// For tests/oracles/test_segmenter.py: writes the total of the dictionary's frequencies, then reads JSON strings, one a
// line, on stdin and writes the words of each as a JSON list, one a line.
//   segment_probe CACHE DICTIONARY [USER_DICTIONARY...]     an empty CACHE: none
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rf/io/error.h"
#include "rf/io/utf8.h"
#include "rf/text/segmenter.h"

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: segment_probe CACHE DICTIONARY [USER_DICTIONARY...]\n";
    return 2;
  }
  try {
    const auto dictionary =
        rf::text::Dictionary::load(argv[2], std::vector<std::string>(argv + 3, argv + argc), {argv[1]});
    std::cout << dictionary->total() << '\n';
    rf::text::Segmenter segmenter(dictionary);
    std::vector<uint32_t> ends;
    for (std::string line; std::getline(std::cin, line);) {
      std::u32string chars;
      const auto text = nlohmann::json::parse(line).get<std::string>();
      for (std::string_view rest = text; !rest.empty();) {
        const rf::Decoded decoded = rf::decode_utf8(rest);
        chars.push_back(decoded.code);
        rest.remove_prefix(static_cast<size_t>(decoded.length));
      }
      segmenter.cut(chars, ends);
      std::vector<std::string> words(ends.size());
      uint32_t at = 0;
      for (size_t word = 0; word < ends.size(); ++word) {
        for (; at < ends[word]; ++at) rf::append_utf8(chars[at], words[word]);
      }
      std::cout << nlohmann::json(words).dump() << '\n';
    }
  } catch (const rf::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
