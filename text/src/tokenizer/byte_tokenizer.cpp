#include "rf/text/byte_tokenizer.h"

#include "models/byte_alphabet.h"

namespace rf::text {

Tokenizer byte_tokenizer() {
  constexpr int64_t kBytes = 256;
  std::vector<std::string> tokens;
  for (int64_t byte = 0; byte < kBytes; ++byte) tokens.push_back(letters_of(std::string(1, static_cast<char>(byte))));
  const SpecialNames names;
  tokens.insert(tokens.end(), {names.pad, names.unk, names.cls, names.sep, names.mask});
  return Tokenizer(TokenizerParts{
      .vocabulary = Vocabulary(std::move(tokens), names, kBytes),
      .options = {.pipeline = Pipeline::kByteLevelBpe, .decoding = {.join = DecodingOptions::Join::kBytes}},
      .added = {},
      .merges = {}});
}

}  // namespace rf::text
