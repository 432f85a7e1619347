// The families of this folder.
#include "family.h"

namespace rf {

ModelFamily eurobert();
ModelFamily gemma3();
ModelFamily gpt_neox();
ModelFamily gte();
ModelFamily gte_of_authors();
ModelFamily jina_embeddings_v3();
ModelFamily modernbert();
ModelFamily neobert();
ModelFamily t5();
ModelFamily ultrabert();
ModelFamily llama();
ModelFamily llama_bidirec();
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
      llama(),      llama_bidirec(), mistral(), qwen2(),          qwen3(),     gpt_neox(),           gemma3(),
      nomic_bert(), modernbert(),    gte(),     gte_of_authors(), eurobert(),  jina_embeddings_v3(), ultrabert(),
      t5(),         neobert(),       roberta(), xlm_roberta(),    camembert(), distilbert(),         electra(),
      mpnet(),      deberta_v2(),    deberta(), ernie(),          albert()};
  return all;
}

}  // namespace rf
