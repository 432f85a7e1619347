// ERNIE (Sun et al. 2019, arXiv 1904.09223; 2020, arXiv 1907.12412): BERT. With use_task_id, the vector of task 0 is
// added to the embeddings.
#include "../rotary_report/parts.h"
#include "family.h"

namespace rf {

ModelFamily ernie() {
  ModelFamily family = like_bert("ernie", "Ernie", "ernie.", {});
  family.defaults = R"({"type_vocab_size": 2, "pad_token_id": 0, "max_position_embeddings": 512,
    "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
    "task_type_vocab_size": 3})";
  family.keys = {"use_task_id", "task_type_vocab_size"};
  family.read = [](const Keys& keys, ModelConfig& config) {
    if (keys.boolean("use_task_id", false))
      config.task_vocab_size = keys.integer({"task_type_vocab_size"}, 1, int64_t{1} << 24);
  };
  return family;
}

}  // namespace rf
