// JSON of replies (json_text.h).
#include "json_text.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include "http.h"

namespace rf::server {

std::string base64_of(std::span<const std::byte> bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // with the end that OpenSSL writes
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), reinterpret_cast<const unsigned char*>(bytes.data()),
                  static_cast<int>(bytes.size()));
  text.pop_back();
  return text;
}

std::vector<int32_t> ids_of(const nlohmann::json& list, const text::Tokenizer& tokenizer, const char* rule) {
  if (!list.is_array()) throw HttpError(http::status::bad_request, fmt::format("{}, got {}", rule, list.type_name()));
  std::vector<int32_t> ids;
  for (const nlohmann::json& id : list) {
    if (!id.is_number_integer() || id < 0 || id >= tokenizer.vocabulary().size())
      throw HttpError(http::status::bad_request,
                      fmt::format("{} below {}, got {}", rule, tokenizer.vocabulary().size(), id.dump()));
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

}  // namespace rf::server
