// The fuzzed functions. Each takes any bytes, and must return: invalid input throws rf::Error, which the target
// catches. Any other exception, a broken promise of a header (check()) or a sanitizer report is a defect.
#pragma once

#include <span>
#include <string_view>

namespace rf::fuzz {

struct Target {
  std::string_view name;  // also that of its folder in fuzz/corpus
  void (*run)(std::string_view bytes);
};
std::span<const Target> targets();
const Target* find_target(std::string_view name);  // nullptr for another name

}  // namespace rf::fuzz
