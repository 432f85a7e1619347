// Words, n-grams and their precisions (rf/tasks/bleu.h).
#include "rf/tasks/bleu.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "rf/io/error.h"
#include "rf/io/utf8.h"

namespace rf::tasks {

namespace {

bool is_bleu_digit(char c) {
  return c >= '0' && c <= '9';
}

// The first expression of mteval-v13a: ASCII punctuation but ' , - and .
bool is_bleu_punctuation(char c) {
  return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') ||
         (c >= ':' && c <= '@') || c == '/';
}

bool is_point(char c) {
  return c == '.' || c == ',';
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (size_t at; (at = text.find(from)) != std::string_view::npos; text.remove_prefix(at + from.size())) {
    out.append(text.substr(0, at)).append(to);
  }
  return out.append(text);
}

// Replaces matches of two neighbouring characters by what `put` appends; each character is in one match at most.
template <typename Matches, typename Put>
std::string with_pairs(const std::string& text, const Matches& matches, const Put& put) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    if (i + 1 < text.size() && matches(text[i], text[i + 1])) {
      put(out, text[i], text[i + 1]);
      i += 2;
    } else {
      out.push_back(text[i++]);
    }
  }
  return out;
}

std::string spaced_out(std::string_view line) {
  std::string text = replaced(replaced(replaced(line, "<skipped>", ""), "-\n", ""), "\n", " ");
  for (const auto& [name, character] : {std::pair{"&quot;", "\""}, {"&amp;", "&"}, {"&lt;", "<"}, {"&gt;", ">"}}) {
    text = replaced(text, name, character);
  }
  std::string apart(1, ' ');
  for (const char c : text) {
    if (is_bleu_punctuation(c)) {
      apart.append({' ', c, ' '});
    } else {
      apart.push_back(c);
    }
  }
  apart.push_back(' ');
  apart = with_pairs(
      apart, [](char a, char b) { return !is_bleu_digit(a) && is_point(b); },
      [](std::string& out, char a, char b) {
        out.append({a, ' ', b, ' '});
      });
  apart = with_pairs(
      apart, [](char a, char b) { return is_point(a) && !is_bleu_digit(b); },
      [](std::string& out, char a, char b) {
        out.append({' ', a, ' ', b});
      });
  return with_pairs(
      apart, [](char a, char b) { return is_bleu_digit(a) && b == '-'; },
      [](std::string& out, char a, char b) {
        out.append({a, ' ', b, ' '});
      });
}

// As Python's str.split() has it.
bool is_python_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

using NgramCounts = std::unordered_map<std::string, int64_t>;

NgramCounts ngrams(const std::vector<std::string>& words, size_t n) {
  NgramCounts counts;
  for (size_t i = 0; i + n <= words.size(); ++i) {
    std::string joined;
    for (size_t k = 0; k < n; ++k) joined.append(words[i + k]).push_back(' ');
    ++counts[joined];
  }
  return counts;
}

}  // namespace

std::vector<std::string> bleu_words(std::string_view line) {
  const std::string spaced = spaced_out(line);
  std::vector<std::string> words;
  std::string word;
  for (std::string_view rest = spaced; !rest.empty();) {
    const Decoded decoded = decode_utf8(rest);
    const auto length = static_cast<size_t>(decoded.length);
    if (!is_python_space(decoded.code)) {
      word += rest.substr(0, length);
    } else if (!word.empty()) {
      words.push_back(std::move(word));
      word.clear();
    }
    rest.remove_prefix(length);
  }
  if (!word.empty()) words.push_back(std::move(word));
  return words;
}

BleuCounts& BleuCounts::operator+=(const BleuCounts& other) {
  for (size_t n = 0; n < correct.size(); ++n) {
    correct[n] += other.correct[n];
    total[n] += other.total[n];
  }
  words += other.words;
  reference_words += other.reference_words;
  return *this;
}

BleuCounts bleu_counts(std::string_view translation, std::string_view reference) {
  const std::vector<std::string> own = bleu_words(translation), given = bleu_words(reference);
  BleuCounts counts;
  counts.words = std::ssize(own);
  counts.reference_words = std::ssize(given);
  for (size_t n = 1; n <= counts.correct.size(); ++n) {
    const NgramCounts of_reference = ngrams(given, n);
    for (const auto& [ngram, count] : ngrams(own, n)) {
      counts.total[n - 1] += count;
      if (const auto found = of_reference.find(ngram); found != of_reference.end()) {
        counts.correct[n - 1] += std::min(count, found->second);
      }
    }
  }
  return counts;
}

double bleu(const BleuCounts& corpus) {
  if (std::all_of(corpus.correct.begin(), corpus.correct.end(), [](int64_t n) { return n == 0; })) return 0;
  double log_sum = 0, smoothed = 1;
  for (size_t n = 0; n < corpus.correct.size(); ++n) {
    if (corpus.total[n] == 0) return 0;
    const auto total = static_cast<double>(corpus.total[n]);
    if (corpus.correct[n] == 0) smoothed *= 2;
    const double precision =
        corpus.correct[n] == 0 ? 1 / (smoothed * total) : static_cast<double>(corpus.correct[n]) / total;
    log_sum += std::log(precision);
  }
  const double ratio = static_cast<double>(corpus.reference_words) / static_cast<double>(corpus.words);
  const double brevity = corpus.words < corpus.reference_words ? std::exp(1 - ratio) : 1;
  return 100 * brevity * std::exp(log_sum / static_cast<double>(corpus.correct.size()));
}

double bleu(std::span<const std::string> translations, std::span<const std::string> references) {
  if (translations.size() != references.size()) {
    fail("bleu", "there must be a translation for each reference, got {} and {}", translations.size(),
         references.size());
  }
  BleuCounts corpus;
  for (size_t i = 0; i < translations.size(); ++i) corpus += bleu_counts(translations[i], references[i]);
  return bleu(corpus);
}

}  // namespace rf::tasks
