// JSON of replies, and ids of requests.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "rf/text/tokenizer.h"

namespace rf::server {

// A JSON list; item(i, to) appends item i.
template <typename Item>
std::string list_of(size_t count, const Item& item) {
  std::string list = "[";
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) list += ',';
    item(i, list);
  }
  return list += ']';
}

std::string base64_of(std::span<const std::byte> bytes);

// Ids of tokens. Throws HttpError, 400, "RULE below N, got ..", for other values.
std::vector<int32_t> ids_of(const nlohmann::json& list, const text::Tokenizer& tokenizer, const char* rule);

}  // namespace rf::server
