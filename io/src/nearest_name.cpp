// nearest_name: Levenshtein distance, one row of its table at a time.
#include "rf/io/nearest_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace rf::io {
namespace {

constexpr size_t kMaxBytes = 64;  // longer names are not compared

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, substituted}));
    }
  }
  return row[b.size()];
}

}  // namespace

std::string_view nearest_name(std::string_view given, std::span<const std::string_view> known) {
  if (given.size() > kMaxBytes) return "";
  std::string_view nearest;
  size_t limit = std::max<size_t>(2, given.size() / 4) + 1;
  for (const std::string_view name : known) {
    const size_t distance = edit_distance(given, name);
    if (distance >= limit) continue;
    limit = distance;
    nearest = name;
  }
  return nearest;
}

std::string listed(std::span<const std::string_view> names, std::string_view conjunction) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 < names.size() ? ", " : fmt::format(" {} ", conjunction);
    text += names[i];
  }
  return text;
}

}  // namespace rf::io
