// For bench/tokenizer_bench.py: our side, timed in this process. tokenize_server KIND VOCAB TEXT [DICTIONARY] (or model
// DIR TEXT, of a model directory) holds the lines of TEXT in memory and obeys, a line each from standard input:
//   encode      tokenizes all lines, 1000 a batch, on one core; answers {"seconds", "tokens"}
//   batch N     the same through BatchEncoder on N threads, special tokens added
//   dump        answers a line of text with {"ids", "begin", "end"} for each line: offsets in characters
#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rf/text/batch.h"
#include "rf/text/segmenter.h"
#include "rf/text/tokenizer.h"

namespace {

using namespace rf::text;
constexpr size_t kBatch = 1000;

std::vector<std::string> read_lines(const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

Tokenizer open(int argc, char** argv) {
  if (std::string_view(argv[1]) == "model") return Tokenizer::load(argv[2]);
  TokenizerOptions options;
  options.pipeline = pipeline_of_name(argv[1]);
  if (argc > 4) options.dictionary = Dictionary::load(argv[4]);
  return {Vocabulary::load(argv[2]), options};
}

int64_t encode_all(const Tokenizer& tokenizer, const std::vector<std::string>& lines) {
  int64_t tokens = 0;
  std::vector<Encoding> batch(kBatch);
  for (size_t first = 0; first < lines.size(); first += kBatch) {
    const size_t count = std::min(kBatch, lines.size() - first);
    for (size_t i = 0; i < count; ++i) {
      batch[i].clear();
      tokenizer.encode(lines[first + i], batch[i]);
      tokens += static_cast<int64_t>(batch[i].size());
    }
  }
  return tokens;
}

int64_t encode_batches(const Tokenizer& tokenizer, const std::vector<std::string>& lines, int threads) {
  int64_t tokens = 0;
  BatchOptions options;
  options.threads = threads;
  BatchEncoder encoder(tokenizer, options);
  std::vector<TextPair> batch;
  for (size_t first = 0; first < lines.size(); first += kBatch) {
    batch.clear();
    for (size_t i = first; i < std::min(first + kBatch, lines.size()); ++i) batch.push_back({lines[i]});
    for (const Row& row : encoder.encode(batch)) tokens += static_cast<int64_t>(row.size());
  }
  return tokens;
}

template <class Work>
void answer(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  const int64_t tokens = work();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::cout << nlohmann::json{{"seconds", seconds.count()}, {"tokens", tokens}}.dump() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  const Tokenizer tokenizer = open(argc, argv);
  const std::vector<std::string> lines = read_lines(argv[3]);
  for (std::string command; std::cin >> command;) {
    if (command == "encode") {
      answer([&] { return encode_all(tokenizer, lines); });
    } else if (command == "batch") {
      int threads = 1;
      std::cin >> threads;
      answer([&] { return encode_batches(tokenizer, lines, threads); });
    } else {
      for (const std::string& line : lines) {
        Encoding out;
        tokenizer.encode(line, out);
        std::cout << nlohmann::json{{"ids", out.ids}, {"begin", out.char_begin}, {"end", out.char_end}}.dump() << '\n';
      }
      std::cout << std::flush;
    }
  }
  return 0;
}
