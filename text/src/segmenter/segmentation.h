// jieba's segmentation without its hidden Markov model, over any store of words. The text is divided into runs of the
// characters that words consist of, and a run is split along its most probable path. With w(i, e) the logarithm of the
// probability of the word [i, e), jieba's rule is
//   route(n) = 0,  route(i) = max over e of w(i, e) + route(e),  of equal values the larger e,
// over the dictionary's words that begin at i, or the single character i with frequency 1 without such a word. It is
// computed from the back, with sums in jieba's order, so rounding and ties are the same.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "rf/text/segmenter.h"

namespace rf::text {

constexpr size_t kMaxWordChars = 255;  // of a dictionary word, so that a length fits a byte
constexpr double kNoWord = -std::numeric_limits<double>::infinity();  // the weight if no word ends here

// The weight of a word: jieba's log(frequency or 1) - log(total).
inline double word_weight(double frequency, double log_total) { return std::log(frequency) - log_total; }

// The code of a character in the dictionary, with its class in the two upper bits.
constexpr uint32_t kInRun = uint32_t{1} << 31;
constexpr uint32_t kAlphanumeric = uint32_t{1} << 30;  // ASCII letter or digit
constexpr uint32_t kCodeMask = kAlphanumeric - 1;

// The two bits of a code point, for the characters of `rjieba`'s runs.
constexpr uint32_t run_flags(char32_t c) {
  if (c < 0x80) {
    const bool alphanumeric = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (alphanumeric) return kInRun | kAlphanumeric;
    return std::u32string_view(U"+#&._%-").find(c) != std::u32string_view::npos ? kInRun : 0;
  }
  const bool han = (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0xF900 && c <= 0xFAFF) ||
                   (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2EBEF) || (c >= 0x2F800 && c <= 0x2FA1F);
  return han ? kInRun : 0;
}

// `Words` has
//   uint32_t code(char32_t c) const;                the code of a character and its flags
//   Node root() const;                              where a word begins
//   bool step(Node& node, uint32_t code) const;     to the next character, code without flags; false: no word continues
//   double weight(Node node) const;                 of the word that ends here, or kNoWord
//   double single() const;                          of a character that no word begins with
template <typename Words>
void best_path(const Words& words, SegmentationBuffers& run) {
  constexpr size_t kRing = kMaxWordChars + 1;
  std::array<double, kRing> route;  // of the last kRing positions
  const size_t size = run.codes.size();
  route[size % kRing] = 0;
  run.lengths.resize(size);
  for (size_t i = size; i-- > 0;) {
    double best = kNoWord;
    size_t best_end = i + 1;
    auto node = words.root();
    const size_t last_end = std::min(size, i + kMaxWordChars);  // a length fits a byte for any words
    for (size_t end = i; end < last_end && words.step(node, run.codes[end] & kCodeMask);) {
      ++end;
      const double value = words.weight(node) + route[end % kRing];
      if (value >= best) {
        best = value;
        best_end = end;
      }
    }
    if (best == kNoWord) {
      best_end = i + 1;
      best = words.single() + route[best_end % kRing];
    }
    route[i % kRing] = best;
    run.lengths[i] = static_cast<uint8_t>(best_end - i);
  }
}

// Appends the ends of the words of the run that begins at `begin`. Consecutive letters and digits that are words of one
// character become one word.
template <typename Words>
void cut_run(const Words& words, SegmentationBuffers& run, size_t begin, std::vector<uint32_t>& ends) {
  best_path(words, run);
  bool joins = false;
  for (size_t at = 0; at < run.lengths.size(); at += run.lengths[at]) {
    const bool alphanumeric = run.lengths[at] == 1 && (run.codes[at] & kAlphanumeric) != 0;
    const auto end = static_cast<uint32_t>(begin + at + run.lengths[at]);
    if (joins && alphanumeric) {
      ends.back() = end;
    } else {
      ends.push_back(end);
    }
    joins = alphanumeric;
  }
}

// The end of each word of the text; `ends` is cleared.
template <typename Words>
void segment(const Words& words, std::u32string_view text, SegmentationBuffers& buffers, std::vector<uint32_t>& ends) {
  ends.clear();
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    buffers.codes.clear();
    for (uint32_t code = 0; at < text.size() && ((code = words.code(text[at])) & kInRun) != 0; ++at) {
      buffers.codes.push_back(code);
    }
    if (at > begin) cut_run(words, buffers, begin, ends);
    if (at == text.size()) break;
    at += text.substr(at, 2) == U"\r\n" ? 2 : 1;
    ends.push_back(static_cast<uint32_t>(at));
  }
}

}  // namespace rf::text
