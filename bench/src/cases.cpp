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

Cases select_cases(const Options& options) {
  Cases all;
  for (const auto add : {add_rope, add_attention, add_linear_attention, add_norm, add_gelu, add_softmax,
                         add_cross_entropy, add_linear}) {
    add(all, options.sizes);
  }
  std::regex filter;
  try {
    filter = std::regex(options.filter);
  } catch (const std::regex_error&) {
    fail("bench", "the filter must be a regular expression, got {}", io::printable(options.filter));
  }
  std::erase_if(all, [&](const Case& c) { return !std::regex_search(c.name, filter); });
  if (all.empty()) {
    fail("bench", "the filter must match part of a case's name (roformer bench --list has them), got {}",
         io::printable(options.filter));
  }
  return all;
}

}  // namespace rf::bench
