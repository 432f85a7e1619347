// Encodings, templates, and the tokenizer of bytes (rf/text/tokenizer.h).
#include "models/byte_alphabet.h"
#include "rf/text/tokenizer.h"

namespace rf::text {
namespace {

using Part = SequenceTemplate::Part;
using Piece = SequenceTemplate::Piece;

}  // namespace

void Encoding::clear() {
  resize(0);
  replaced_bytes = 0;
}

void Encoding::reserve(size_t tokens) {
  for (std::vector<int32_t>* column : {&ids, &byte_begin, &byte_end, &char_begin, &char_end}) column->reserve(tokens);
  starts_word.reserve(tokens);
}

void Encoding::resize(size_t tokens) {
  for (std::vector<int32_t>* column : {&ids, &byte_begin, &byte_end, &char_begin, &char_end}) column->resize(tokens);
  starts_word.resize(tokens);
}

void Encoding::append(const Encoding& other, size_t begin, size_t end) {
  const auto append_column = [&](auto& to, const auto& from) {
    to.insert(to.end(), from.begin() + static_cast<ptrdiff_t>(begin), from.begin() + static_cast<ptrdiff_t>(end));
  };
  append_column(ids, other.ids);
  append_column(byte_begin, other.byte_begin);
  append_column(byte_end, other.byte_end);
  append_column(char_begin, other.char_begin);
  append_column(char_end, other.char_end);
  append_column(starts_word, other.starts_word);
}

void Encoding::append_special(int32_t id) {
  ids.push_back(id);
  for (std::vector<int32_t>* offsets : {&byte_begin, &byte_end, &char_begin, &char_end}) offsets->push_back(0);
  starts_word.push_back(1);
}

SequenceTemplate bert_template(int32_t cls, int32_t sep) {
  const Piece begin = {Part::kSpecial, cls, 0}, first = {Part::kFirst, 0, 0}, end = {Part::kSpecial, sep, 0};
  const Piece second = {Part::kSecond, 0, 1}, second_end = {Part::kSpecial, sep, 1};
  return {.single = {begin, first, end}, .pair = {begin, first, end, second, second_end}};
}

SequenceTemplate roberta_template(int32_t cls, int32_t sep) {
  const Piece begin{Part::kSpecial, cls, 0}, end{Part::kSpecial, sep, 0};
  return {.single = {begin, {Part::kFirst}, end}, .pair = {begin, {Part::kFirst}, end, end, {Part::kSecond}, end}};
}

SequenceTemplate plain_template() {
  return {.single = {{Part::kFirst}}, .pair = {{Part::kFirst}, {Part::kSecond, 0, 1}}};
}

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
