// Tokens with their positions (rf/text/encoding.h).
#include "rf/text/encoding.h"

namespace rf::text {

void Encoding::clear() {
  for (std::vector<int32_t>* column : {&ids, &byte_begin, &byte_end, &char_begin, &char_end}) column->clear();
  starts_word.clear();
  replaced_bytes = 0;
}

void Encoding::reserve(size_t tokens) {
  for (std::vector<int32_t>* column : {&ids, &byte_begin, &byte_end, &char_begin, &char_end}) column->reserve(tokens);
  starts_word.reserve(tokens);
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

}  // namespace rf::text
