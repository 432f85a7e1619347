#include "splitters/split_steps.h"

#include <algorithm>

#include "rf/io/error.h"
#include "rf/io/utf8.h"
#include "unicode/unicode.h"

namespace rf::text {
namespace {

bool is_digit(std::string_view text, size_t at) {
  const auto first = static_cast<uint8_t>(text[at]);
  if (first < 0x80) return first >= '0' && first <= '9';
  return (regex_classes(decode_utf8(text.substr(at)).code) & kDigitClass) != 0;
}

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

}  // namespace

SplitSteps::SplitSteps(const ByteLevelOptions& options) {
  if (options.add_prefix_space && !options.splits.empty()) {
    fail("byte-level-bpe", "add_prefix_space must be false after a step that splits the text, got true");
  }
  for (const SplitStep& step : options.splits) {
    const bool digits = step.kind == SplitStep::Kind::kDigits || step.kind == SplitStep::Kind::kContiguousDigits;
    steps_.push_back({step.kind, digits ? nullptr : &expressions_.emplace_back(step.expression)});
  }
}

SplitParts::SplitParts(const SplitSteps& steps, bool use_regex) : use_regex_(use_regex) {
  for (const SplitSteps::Step& step : steps.steps()) {
    levels_.push_back({.kind = step.kind, .search = {}});
    if (step.expression != nullptr) levels_.back().search.emplace(*step.expression);
  }
}

void SplitParts::begin(std::string_view text) {
  text_ = text;
  at_ = part_end_ = 0;
  for (Level& level : levels_) level.begin = level.end = 0;
}

SplitParts::Part SplitParts::next() {
  if (at_ == part_end_) {
    is_omitted_ = false;
    size_t end = text_.size();
    for (Level& level : levels_) {
      if (level.end == at_) {
        level.begin = at_;
        level.end = end;
        level.match = {at_, at_};
        if (level.search) level.search->begin(text_.substr(at_, end - at_));
      }
      end = part_end(level, is_omitted_);
    }
    part_end_ = end;
  }
  const std::string_view part = text_.substr(at_, part_end_ - at_);
  Part found{part.size(), false, is_omitted_};
  if (use_regex_ && !is_omitted_) {
    const Gpt2Word word = next_gpt2_word(part, 0);
    found = {word.end, word.ascii, false};
  } else {
    found.ascii = is_ascii(part);
  }
  at_ += found.end;
  return found;
}

// The end of the level's part at at_.
size_t SplitParts::part_end(Level& level, bool& is_omitted) {
  if (!level.search) {
    const bool contiguous = level.kind == SplitStep::Kind::kContiguousDigits;
    return at_ + digits_end(text_.substr(at_, level.end - at_), contiguous);
  }
  if (level.match.end <= at_) {
    const ExpressionSearch::Match found = level.search->next(at_ - level.begin);
    level.match = {level.begin + found.begin, level.begin + found.end};
  }
  if (at_ >= level.match.begin) return level.match.end;
  is_omitted = is_omitted || level.kind == SplitStep::Kind::kMatches;
  return level.match.begin;
}

// Bytes of the part at the front of the text: a digit or digits, or everything before the next digit.
size_t SplitParts::digits_end(std::string_view text, bool contiguous) {
  const auto after = [&](size_t at) { return at + static_cast<size_t>(decode_utf8(text.substr(at)).length); };
  const bool digits = is_digit(text, 0);
  size_t end = after(0);
  if (digits && !contiguous) return end;
  while (end < text.size() && is_digit(text, end) == digits) end = after(end);
  return end;
}

}  // namespace rf::text
