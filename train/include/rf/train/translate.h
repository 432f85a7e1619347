// Translating lines with an encoder-decoder. Free of torch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace rf::train {

struct TranslateOptions {
  std::string model_dir;
  int64_t beams = 4;            // 1: greedy
  double length_penalty = 0.6;  // translations are ranked by log-probability over tokens^penalty
  double max_ratio = 1;         // tokens of a translation for each of its source's, at most, ..
  int64_t max_extra = 50;       // .. and so many more
  int64_t max_source = 0;       // tokens read of a line, its end included; 0: the model's limit
  int64_t batch_tokens = 4096;  // of a batch: lines * longest line * beams
  enum class Cache { kUsed, kNone } cache = Cache::kUsed;  // of keys and values; kNone: for comparison
  std::function<void(const std::string&)> note{};
};

struct TranslatedLine {
  std::string text;
  double score = 0;
};

class Translator {
 public:
  // Throws Error for options out of range, and for a directory without model or tokenizer.
  explicit Translator(TranslateOptions options);

  // One translation per line, in order; lines of similar length are computed together. A line of white space gives an
  // empty translation. Of a line that is too long only the first tokens are translated, and invalid UTF-8 is read as
  // U+FFFD; a message names such a line as line `first_line` + i of `name`. done: receives the number of finished
  // lines; may be empty.
  std::vector<TranslatedLine> translate(std::span<const std::string> lines, const std::string& name, int64_t first_line,
                                        const std::function<void(int64_t)>& done = {});

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // copies share the model
};

}  // namespace rf::train
