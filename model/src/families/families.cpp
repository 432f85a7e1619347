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

ModelFamily like_bert(std::string_view model_type, std::string_view classes, std::string_view prefix,
                      std::span<const ModuleName> modules) {
  return {.model_type = model_type,
          .classes = classes,
          .prefix = prefix,
          .berts_names = true,
          .modules = modules,
          .heads = Family::kBert,
          .rotates = false,
          .positions = {.learned = true},
          .activation = Activation::kGelu,
          .any_activation = true,
          .eps_key = "layer_norm_eps",
          .eps = 1e-12,
          .defaults = R"({"type_vocab_size": 2, "pad_token_id": 0, "max_position_embeddings": 512})"};
}

std::vector<ModuleName> joined(std::initializer_list<ModuleName> own, std::span<const ModuleName> others) {
  std::vector<ModuleName> all(own);
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

std::span<const ModelFamily> model_families() {
  static const std::vector<ModelFamily> all = {
      llama(),      llama_bidirec(), mistral(), qwen2(),          qwen3(),     gpt_neox(),           gemma3(),
      nomic_bert(), modernbert(),    gte(),     gte_of_authors(), eurobert(),  jina_embeddings_v3(), ultrabert(),
      t5(),         neobert(),       roberta(), xlm_roberta(),    camembert(), distilbert(),         electra(),
      mpnet(),      deberta_v2(),    deberta(), ernie(),          albert()};
  return all;
}

}  // namespace rf
