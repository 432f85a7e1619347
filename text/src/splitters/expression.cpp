#include "splitters/expression.h"

#include <algorithm>
#include <bit>

#include "rf/io/error.h"
#include "rf/io/utf8.h"
#include "unicode/unicode.h"

namespace rf::text {
namespace {

constexpr size_t kSteps = 10'000, kStepsPerByte = 4096;

}  // namespace

Expression::Character Expression::other_character(std::string_view text) const {
  const Decoded decoded = decode_utf8(text);
  return {sets_of(decoded.code), static_cast<uint8_t>(decoded.length)};
}

uint64_t Expression::sets_of(char32_t code) const {
  const auto range = std::ranges::upper_bound(of_range_, code, {}, &std::pair<char32_t, uint64_t>::first);
  const uint64_t listed = range == of_range_.begin() ? 0 : std::prev(range)->second;
  return (of_category_[general_category(code)] | listed) ^ negated_;
}

uint64_t Expression::candidates(uint64_t sets) const {
  uint64_t found = 0;
  for (size_t i = 0; i < first_.size(); ++i) found |= uint64_t{(first_[i] & sets) != 0} << i;
  return found;
}

void ExpressionSearch::begin(std::string_view text) {
  text_ = text;
  steps_ = kSteps + kStepsPerByte * text.size();
  if (has_runs_) std::ranges::fill(runs_, Run{});
  has_runs_ = false;
}

ExpressionSearch::Match ExpressionSearch::next(size_t from) {
  for (size_t at = from; at < text_.size();) {
    size_t length = 1;
    uint64_t candidates = 0;
    if (static_cast<uint8_t>(text_[at]) < 0x80) {
      candidates = expression_->ascii_candidates(text_[at]);
    } else {
      const Expression::Character c = expression_->character(text_, at);
      candidates = expression_->candidates(c.sets);
      length = c.length;
    }
    for (; candidates != 0; candidates &= candidates - 1) {
      const Expression::Sequence& sequence =
          expression_->alternatives()[static_cast<size_t>(std::countr_zero(candidates))];
      const size_t end = match(sequence.data(), sequence.data() + sequence.size(), at, nullptr);
      if (end != kFails) return {at, end};
    }
    at += length;
  }
  return {text_.size(), text_.size()};
}

bool ExpressionSearch::contains(uint64_t set, size_t at, size_t& length) const {
  if (at >= text_.size()) return false;
  const Expression::Character c = expression_->character(text_, at);
  length = c.length;
  return (c.sets & set) != 0;
}

void ExpressionSearch::spend(size_t steps) {
  if (steps > steps_) {
    fail("expression", "a splitting expression must match a text in at most {} steps and {} per byte, got more", kSteps,
         kStepsPerByte);
  }
  steps_ -= steps;
}

// The end of the match of the items from there on, and of what follows their group.
size_t ExpressionSearch::match(const Item* item, const Item* end, size_t at, const Rest* outer) {
  if (item == end) return outer == nullptr ? at : match(outer->item, outer->end, at, outer->outer);
  spend(1);
  size_t length = 0;
  switch (item->kind) {
    case Item::Kind::kGroup: return match_group(*item, item + 1, end, at, outer);
    case Item::Kind::kAhead:
    case Item::Kind::kNotAhead:
      if (contains(item->set, at, length) != (item->kind == Item::Kind::kAhead)) return kFails;
      break;
    case Item::Kind::kLineEnd:
      if (at < text_.size() && text_[at] != '\n') return kFails;
      break;
    case Item::Kind::kSet:
      const bool may_fail = !item->rest_matches && item->max == kFails;
      return may_fail ? match_run(item, end, at, outer) : match_bounded(item, end, at, outer);
  }
  return match(item + 1, end, at, outer);
}

size_t ExpressionSearch::match_group(const Item& group, const Item* next, const Item* end, size_t at,
                                     const Rest* outer) {
  const Rest rest{next, end, outer};
  for (const Expression::Sequence& sequence : group.alternatives) {
    const size_t found = match(sequence.data(), sequence.data() + sequence.size(), at, &rest);
    if (found != kFails) return found;
  }
  return group.min == 0 ? match(next, end, at, outer) : kFails;
}

size_t ExpressionSearch::match_bounded(const Item* item, const Item* end, size_t at, const Rest* outer) {
  size_t count = 0, stop = at, length = 0;
  for (; count < item->max && contains(item->set, stop, length); ++count) stop += length;
  spend(count);
  for (;; --count) {
    if (count < item->min) return kFails;
    const size_t found = match(item + 1, end, stop, outer);
    if (found != kFails || item->possessive || item->rest_matches || count == 0) return found;
    do --stop;
    while (!begins_character(text_[stop]));
  }
}

size_t ExpressionSearch::match_run(const Item* item, const Item* end, size_t at, const Rest* outer) {
  Run& run = runs_[item->run];
  const bool is_inside = run.begin <= at && at <= run.end;
  size_t failed = is_inside ? run.failed : kFails, stop = at, length = 0;
  size_t least = at;  // the end of the shortest repetition
  for (size_t count = 0; count < item->min; ++count) {
    if (!contains(item->set, least, length)) return kFails;
    least += length;
  }
  if (is_inside) {
    stop = run.end;
  } else {
    const bool may_meet = run.begin <= run.end && at < run.begin;
    for (stop = least; contains(item->set, stop, length); stop += length) {
      if (!may_meet || stop != run.begin) continue;
      stop = run.end;
      failed = run.failed;
      break;
    }
    run.begin = at;
  }
  run.end = stop;
  run.failed = failed;
  has_runs_ = true;
  for (stop = std::min(stop, failed == kFails ? stop : failed); stop >= least;) {
    if (stop != failed) {
      const size_t found = match(item + 1, end, stop, outer);
      if (found != kFails) return found;
      run.failed = stop;
    }
    if (stop == 0 || item->possessive) break;
    do --stop;
    while (stop > 0 && !begins_character(text_[stop]));
  }
  return kFails;
}

}  // namespace rf::text
