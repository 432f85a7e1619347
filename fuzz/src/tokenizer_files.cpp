// The files of a tokenizer, and its tokens of a text.
#include "memory_directory.h"
#include "rf/io/error.h"
#include "rf/text/tokenizer.h"
#include "target_functions.h"

namespace rf::fuzz {

namespace {

void check_offsets(const text::Encoding& encoding, std::string_view text) {
  const size_t count = encoding.size();
  check(encoding.byte_begin.size() == count && encoding.byte_end.size() == count);
  check(encoding.char_begin.size() == count && encoding.char_end.size() == count);
  check(encoding.starts_word.size() == count);
  for (size_t i = 0; i < count; ++i) {
    check(0 <= encoding.byte_begin[i] && encoding.byte_begin[i] <= encoding.byte_end[i]);
    check(static_cast<size_t>(encoding.byte_end[i]) <= text.size());
    check(0 <= encoding.char_begin[i] && encoding.char_begin[i] <= encoding.char_end[i]);
  }
}

}  // namespace

void tokenizer_files(std::string_view bytes) {
  static const MemoryDirectory directory;
  const std::string_view text = take_section(bytes);
  for (const std::string_view name : text::kTokenizerFiles) directory.put(std::string(name), take_section(bytes));
  try {
    const text::Tokenizer tokenizer = text::Tokenizer::load(directory.path());
    const text::Encoding encoding = tokenizer.encode_with_specials(text);
    check_offsets(encoding, text);
    tokenizer.decode(encoding.ids, text::SkipSpecials::kYes);
  } catch (const Error&) {
  }
}

}  // namespace rf::fuzz
