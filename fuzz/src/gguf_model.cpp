// A GGUF file as a model and a tokenizer, opened and called.
#include <cstdint>
#include <vector>

#include "memory_directory.h"
#include "rf/engine/model.h"
#include "rf/io/error.h"
#include "rf/text/tokenizer.h"
#include "target_functions.h"

namespace rf::fuzz {

void gguf_model(std::string_view bytes) {
  static const MemoryDirectory directory;
  directory.put("model.gguf", bytes);
  try {
    const engine::Model model(directory.path(), {.token_budget = 3});
    const std::vector<int32_t> ids(5);
    const std::vector<int64_t> offsets = {0, 1, 5};
    std::vector<float> logits(ids.size() * static_cast<size_t>(model.logits_per_row()));
    model.logits({.ids = ids, .offsets = offsets}, logits.data());
  } catch (const Error&) {
  }
  try {
    const text::Tokenizer tokenizer = text::Tokenizer::load(directory.path() + "/model.gguf");
    check(!tokenizer.encode_with_specials("a 12 b").ids.empty());
  } catch (const Error&) {
  }
}

}  // namespace rf::fuzz
