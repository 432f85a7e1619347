// BLEU of a corpus (Papineni et al. 2002) with one reference, as sacreBLEU has it (Post 2018, arXiv 1804.08771) with
// the signature nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rf::tasks {

// mteval-v13a's words: punctuation is apart, but for points and commas between digits.
std::vector<std::string> bleu_words(std::string_view line);

// What a score is made of; counts of a corpus are the sums over its lines.
struct BleuCounts {
  std::array<int64_t, 4> correct{}, total{};  // n-grams of the translation, n = 1 .. 4
  int64_t words = 0, reference_words = 0;
  BleuCounts& operator+=(const BleuCounts& other);
};
BleuCounts bleu_counts(std::string_view translation, std::string_view reference);

double bleu(const BleuCounts& corpus);  // 0 .. 100
// As many lines of the one as of the other.
double bleu(std::span<const std::string> translations, std::span<const std::string> references);

}  // namespace rf::tasks
