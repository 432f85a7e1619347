// The families of this folder.
#include "family.h"

namespace rf {

ModelFamily gpt_neox();
ModelFamily llama();
ModelFamily mistral();
ModelFamily nomic_bert();
ModelFamily qwen2();
ModelFamily qwen3();
ModelFamily albert();
ModelFamily camembert();
ModelFamily deberta();
ModelFamily deberta_v2();
ModelFamily distilbert();
ModelFamily electra();
ModelFamily ernie();
ModelFamily mpnet();
ModelFamily roberta();
ModelFamily xlm_roberta();

std::span<const ModelFamily> model_families() {
  static const std::vector<ModelFamily> all = {
      llama(),     mistral(),    qwen2(),   qwen3(), gpt_neox(),   nomic_bert(), roberta(), xlm_roberta(),
      camembert(), distilbert(), electra(), mpnet(), deberta_v2(), deberta(),    ernie(),   albert()};
  return all;
}

}  // namespace rf
