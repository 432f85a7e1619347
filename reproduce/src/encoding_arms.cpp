// Arms of all encodings (encoding_arms.h).
#include "encoding_arms.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "rf/nn/encoding.h"
#include "rf/train/compare.h"
#include "rules.h"

namespace rf::reproduce {

namespace {

// ":name=value" for each key without a default.
std::string given_keys(const EncodingConfig& encoding) {
  std::string keys;
  const nlohmann::json options = nlohmann::json::parse(encoding.options);
  for (const auto& [name, value] : options.items()) {
    keys += fmt::format(":{}={}", name, value.dump());
  }
  return keys;
}

}  // namespace

std::vector<std::string> encoding_arms(int64_t head_dim, int64_t tokens) {
  std::vector<std::string> arms;
  for (const nn::EncodingInfo& info : nn::encoding_infos()) {
    std::string& arm = arms.emplace_back(info.name);
    if (info.name == "sinusoidal") arm = kScaledSinusoids;
    if (info.name == "rerope") arm += fmt::format(":window={}", tokens / 2);
    arm += given_keys(nn::encoding_entry(info.name).example(head_dim));
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
