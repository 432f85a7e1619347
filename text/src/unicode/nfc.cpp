// Decomposes, orders marks, composes; then the changes are aligned with the source.
#include "unicode/nfc.h"

#include <algorithm>
#include <iterator>

#include "rf/io/utf8.h"

namespace rf::text {
namespace {

#include "unicode/nfc_tables.inc"

int rank_of(char32_t code) {
  const int rank = combining_class(unicode_record(code));
  return rank == 0 || std::ranges::binary_search(kLaterMarks, code) ? 0 : rank;
}

bool is_later_composite(char32_t code) {
  return std::ranges::find(kLaterComposites, code) != std::end(kLaterComposites);
}

// A character and its change to the source: it adds one (1), replaces one (0), or replaces more than one (negative).
struct Change {
  char32_t code;
  int32_t added;
};

std::vector<Change> decompose(const std::vector<SourcedChar>& chars) {
  std::vector<Change> changes;
  for (const SourcedChar& c : chars) {
    if ((unicode_record(c.code) & kDecomposes) == 0 || is_later_composite(c.code)) {
      changes.push_back({c.code, 0});
      continue;
    }
    const Decomposed parts = canonical_decomposition(c.code);
    for (size_t i = 0; i < parts.count; ++i) changes.push_back({parts.codes[i], i == 0 ? 0 : 1});
  }
  const auto is_starter = [](const Change& c) { return rank_of(c.code) == 0; };
  for (auto begin = changes.begin(); begin != changes.end();) {
    begin = std::find_if_not(begin, changes.end(), is_starter);
    const auto end = std::find_if(begin, changes.end(), is_starter);
    std::stable_sort(begin, end, [](const Change& a, const Change& b) { return rank_of(a.code) < rank_of(b.code); });
    begin = end;
  }
  return changes;
}

// Each character joins the last starter before it unless one of equal or higher class stands between them.
std::vector<Change> compose(const std::vector<Change>& changes) {
  std::vector<Change> composed;
  constexpr size_t kNone = static_cast<size_t>(-1);
  size_t starter = kNone;
  int last_rank = -1;  // of the last character kept after the starter, initially -1
  for (const Change& c : changes) {
    const int rank = rank_of(c.code);
    if (starter != kNone && last_rank < rank) {
      const char32_t composite = canonical_composite(composed[starter].code, c.code);
      if (composite != 0 && !is_later_composite(composite)) {
        composed[starter] = {composite, composed[starter].added + c.added - 1};
        continue;
      }
    }
    if (rank == 0) {
      starter = composed.size();
      last_rank = -1;
    } else {
      last_rank = rank;
    }
    composed.push_back(c);
  }
  return composed;
}

}  // namespace

void to_nfc(std::vector<SourcedChar>& chars) {
  std::vector<SourcedChar> out;
  size_t at = 0;
  for (const Change& c : compose(decompose(chars))) {
    if (c.added > 0) {
      out.push_back({c.code, at == 0 ? SourceSpan{} : chars[at - 1].source});
    } else {
      out.push_back({c.code, chars[std::min(at, chars.size() - 1)].source});
      at += static_cast<size_t>(1 - c.added);
    }
  }
  chars.swap(out);
}

std::string to_nfc(std::string_view text) {
  std::vector<SourcedChar> chars;
  while (!text.empty()) chars.push_back({take_utf8(text).code, {}});
  to_nfc(chars);
  std::string out;
  for (const SourcedChar& c : chars) append_utf8(c.code, out);
  return out;
}

}  // namespace rf::text
