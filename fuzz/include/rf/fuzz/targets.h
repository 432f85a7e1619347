// The functions that are fuzzed. Each takes any bytes, and must return: what is wrong with them is an rf::Error, which
// the target catches. Anything else that is thrown, a broken promise of a header (check()) or what a sanitizer reports
// is a defect.
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
