// The list of cases, and small things that they share (case.h).
#include "cases.h"

#include <ATen/ops/randn.h>

#include <regex>

#include "rf/io/error.h"
#include "rf/io/printable.h"

namespace rf::bench {

const char* name_of(Pass pass) {
  return pass == Pass::kForward ? "forward" : "forward-backward";
}

void must(rf_status status) {
  if (status != RF_OK) fail("bench", "{}", rf_last_error());
}

at::Tensor normal(at::IntArrayRef shape, at::ScalarType dtype) {
  return at::randn(shape, at::kFloat).to(dtype);
}

namespace {

// Some ten times the longest name. std::regex reads a pattern by recursion, and deep ones end the stack.
constexpr size_t kMaxFilterLength = 512;

// The library's default way to match takes exponential time for (.*)*; this one keeps all states at once, and has no
// back-references.
std::regex parse_filter(const std::string& filter) {
  if (filter.size() > kMaxFilterLength) {
    fail("bench", "the filter must have at most {} bytes, got {}", kMaxFilterLength, filter.size());
  }
  try {
    return std::regex(filter, std::regex::ECMAScript | std::regex_constants::__polynomial);
  } catch (const std::regex_error&) {
    fail("bench", "the filter must be a regular expression without back-references, got {}", io::printable(filter));
  }
}

}  // namespace

Cases select_cases(const Options& options) {
  Cases all;
  for (const auto add : {add_rope, add_attention, add_linear_attention, add_norm, add_gelu, add_softmax,
                         add_cross_entropy, add_linear}) {
    add(all, options.sizes);
  }
  const std::regex filter = parse_filter(options.filter);
  std::erase_if(all, [&](const Case& c) { return !std::regex_search(c.name, filter); });
  if (all.empty()) {
    fail("bench", "the filter must match part of a case's name (roformer bench --list has them), got {}",
         io::printable(options.filter));
  }
  return all;
}

}  // namespace rf::bench
