// Translating lines with an encoder-decoder.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rf/engine/translator.h"

namespace rf::tasks {

struct TranslateOptions {
  std::string model_dir;
  engine::Precision precision = engine::Precision::kFloat32;
  engine::TranslationOptions search{};
  int64_t max_source = 0;  // tokens read of a line, its end included; 0: the model's limit
  std::function<void(const std::string&)> warn{}, note{};  // receive warnings about the model, and about lines
};

struct TranslatedLine {
  std::string text;
  double score = 0;
};

class LineTranslator {
 public:
  // Throws Error for options out of range, and for a directory without model or tokenizer.
  explicit LineTranslator(TranslateOptions options);

  // One translation per line, in order; lines of similar length are computed together. A line of white space gives an
  // empty translation. A line that is too long is truncated to its first tokens, and invalid UTF-8 is read as
  // U+FFFD; a message names such a line as line `first_line` + i of `name`. done: as TranslationOptions has it.
  std::vector<TranslatedLine> translate(std::span<const std::string> lines, const std::string& name, int64_t first_line,
                                        const std::function<void(int64_t)>& done = {}) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;  // copies share the model
};

}  // namespace rf::tasks
