// Arms of all encodings (encoding_arms.h).
#include "encoding_arms.h"

#include <fmt/format.h>

#include <stdexcept>

#include "rf/nn/encoding_info.h"
#include "rf/train/compare.h"
#include "rules.h"

namespace rf::reproduce {

namespace {

constexpr std::string_view kRequired = " (required";

// ":name=value" for a key without a default, which EncodingInfo::keys marks.
std::string given_key(const std::string& name, int64_t head_dim) {
  if (name == "grid_width") return fmt::format(":grid_width={}", kGridWidth);
  if (name == "grid_shape") return fmt::format(":grid_shape=[-1,{}]", kGridWidth);
  if (name == "rope_parameters.mrope_section") {
    const int64_t pairs = head_dim / 2, third = pairs / 3;
    return fmt::format(R"(:rope_parameters={{"mrope_section":[{},{},{}]}})", pairs - 2 * third, third, third);
  }
  throw std::logic_error(fmt::format("the key {} must have a value in encoding_arms.cpp", name));
}

}  // namespace

std::vector<std::string> encoding_arms(int64_t head_dim, int64_t tokens) {
  std::vector<std::string> arms;
  for (const nn::EncodingInfo& info : nn::encoding_infos()) {
    std::string& arm = arms.emplace_back(info.name);
    if (info.name == "sinusoidal") arm = kScaledSinusoids;
    if (info.name == "rerope") arm += fmt::format(":window={}", tokens / 2);
    for (const std::string& key : info.keys) {
      const size_t end = key.find(kRequired);
      if (end != std::string::npos) arm += given_key(key.substr(0, end), head_dim);
    }
  }
  return arms;
}

std::string encoding_of(const std::string& arm) {
  return train::parse_arm(arm).type;
}

std::string name_of_arm(const std::string& arm) {
  return arm == kScaledT5 ? arm : encoding_of(arm);
}

}  // namespace rf::reproduce
