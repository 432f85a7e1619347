// A model directory, opened and called.
#include <cstdint>
#include <vector>

#include "memory_directory.h"
#include "rf/engine/model.h"
#include "rf/io/error.h"
#include "target_functions.h"

namespace rf::fuzz {

void model_directory(std::string_view bytes) {
  static const MemoryDirectory directory;
  directory.put("config.json", take_section(bytes));
  directory.put("position_terms.safetensors", take_section(bytes));
  directory.put("model.safetensors", bytes);
  try {
    const engine::Model model(directory.path(), {.token_budget = 3});
    const std::vector<int32_t> ids(5);
    const std::vector<int64_t> offsets = {0, 1, 5};
    const engine::Tokens tokens = {.ids = ids, .offsets = offsets};
    std::vector<float> hidden(ids.size() * static_cast<size_t>(model.info().hidden_size));
    model.hidden(tokens, hidden.data());
    if (model.info().task == engine::Task::kNone) return;
    const size_t rows = model.logits_of_tokens() ? ids.size() : offsets.size() - 1;
    std::vector<float> logits(rows * static_cast<size_t>(model.logits_per_row()));
    model.logits(tokens, logits.data());
  } catch (const Error&) {
  }
}

}  // namespace rf::fuzz
