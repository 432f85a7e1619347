// The steps that cut a text into the words of byte-level BPE: each step cuts the parts of the step before it.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string_view>
#include <vector>

#include "rf/text/tokenizer.h"
#include "splitters/expression.h"
#include "splitters/gpt2_splitter.h"

namespace rf::text {

class SplitSteps {
 public:
  // Throws the errors of Expression, and Error for add_prefix_space together with a step.
  explicit SplitSteps(const ByteLevelOptions& options);
  struct Step {
    SplitStep::Kind kind;
    const Expression* expression;  // null: digits
  };
  const std::vector<Step>& steps() const { return steps_; }

 private:
  std::deque<Expression> expressions_;
  std::vector<Step> steps_;
};

// Cuts one text after the other. Use one object per thread.
class SplitParts {
 public:
  struct Part {
    size_t end;  // its bytes: it follows the part before it
    bool ascii, is_omitted;
  };
  SplitParts(const SplitSteps& steps, bool use_regex);
  void begin(std::string_view text);  // valid UTF-8
  Part next();                        // until the text ends

 private:
  struct Level {
    SplitStep::Kind kind;
    std::optional<ExpressionSearch> search;  // absent: digits
    size_t begin = 0, end = 0;               // the part of the step before, in the text
    ExpressionSearch::Match match = {0, 0};  // the next one, in the text
  };
  size_t part_end(Level& level, bool& is_omitted);
  static size_t digits_end(std::string_view text, bool contiguous);

  std::vector<Level> levels_;
  const bool use_regex_;
  std::string_view text_;
  size_t at_ = 0, part_end_ = 0;  // of the last step's part
  bool is_omitted_ = false;
};

}  // namespace rf::text
