// The families of this folder.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "../rotary_report/parts.h"
#include "family.h"

namespace rf {

ModelFamily bert_of_gguf();
ModelFamily embedding_gemma2();
ModelFamily eurobert();
ModelFamily gpt_neox();
ModelFamily cohere();
ModelFamily cohere2();
ModelFamily exaone4();
ModelFamily falcon();
ModelFamily gemma();
ModelFamily gemma2();
ModelFamily gpt2();
ModelFamily gptj();
ModelFamily granite();
ModelFamily gpt_oss();
ModelFamily mixtral();
ModelFamily qwen3_moe();
ModelFamily olmo2();
ModelFamily phi();
ModelFamily phi3();
ModelFamily smollm3();
ModelFamily stablelm();
ModelFamily ministral();
ModelFamily olmo();
ModelFamily olmo3();
ModelFamily olmoe();
ModelFamily glm();
ModelFamily glm4();
ModelFamily helium();
ModelFamily ernie4_5();
ModelFamily seed_oss();
ModelFamily starcoder2();
ModelFamily arcee();
ModelFamily nemotron();
ModelFamily jais2();
ModelFamily persimmon();
ModelFamily bloom();
ModelFamily mpt();
ModelFamily opt();
ModelFamily gpt_neo();
ModelFamily gpt_bigcode();
ModelFamily granitemoe();
ModelFamily hyperclovax();
ModelFamily vaultgemma();
ModelFamily gte();
ModelFamily gte_of_authors();
ModelFamily gte_of_snowflake();
ModelFamily jina_bert();
ModelFamily jina_bert_for_code();
ModelFamily jina_embeddings_v3();
ModelFamily jina_xlm_roberta();
ModelFamily jina_xlm_roberta_with_rotation();
ModelFamily modernbert();
ModelFamily neobert();
ModelFamily t5();
ModelFamily mt5();
ModelFamily ultrabert();
ModelFamily llama_bidirec();
ModelFamily mistral();
ModelFamily nomic_bert();
ModelFamily nomic_bert_moe();
ModelFamily qwen2();
ModelFamily qwen3();
ModelFamily albert();
ModelFamily camembert();
ModelFamily deberta();
ModelFamily deberta_v2();
ModelFamily distilbert();
ModelFamily electra();
ModelFamily ernie();
ModelFamily esm();
ModelFamily esm1();
ModelFamily mpnet();
ModelFamily data2vec_text();
ModelFamily megatron_bert();
ModelFamily roberta_prelayernorm();
ModelFamily xlm_roberta_xl();
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
          .defaults = R"({"type_vocab_size": 2, "pad_token_id": 0, "max_position_embeddings": 512,
                          "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1})"};
}

bool has_own_class(const nlohmann::json& object, std::string_view word) {
  const auto found = object.find("auto_map");
  return found != object.end() &&
         found->dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).find(word) != std::string::npos;
}

void put_inner_width(nlohmann::json& object) {
  const nlohmann::json* const width = given(object, "hidden_size");
  if (given(object, "intermediate_size") == nullptr && width != nullptr && width->is_number_integer())
    object["intermediate_size"] = 4 * std::clamp<int64_t>(width->get<int64_t>(), 0, kMaxExtent);
}

std::vector<ModuleName> joined(std::initializer_list<ModuleName> own, std::span<const ModuleName> others) {
  std::vector<ModuleName> all(own);
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

std::span<const ModelFamily> model_families() {
  static const std::vector<ModelFamily> all = {llama(),
                                               llama_bidirec(),
                                               mistral(),
                                               qwen2(),
                                               qwen3(),
                                               gpt_neox(),
                                               gemma(),
                                               gemma2(),
                                               gemma3(),
                                               phi(),
                                               phi3(),
                                               granite(),
                                               olmo2(),
                                               smollm3(),
                                               stablelm(),
                                               cohere(),
                                               cohere2(),
                                               exaone4(),
                                               falcon(),
                                               gptj(),
                                               gpt2(),
                                               mixtral(),
                                               qwen3_moe(),
                                               gpt_oss(),
                                               ministral(),
                                               olmo(),
                                               olmo3(),
                                               olmoe(),
                                               glm(),
                                               glm4(),
                                               helium(),
                                               ernie4_5(),
                                               seed_oss(),
                                               starcoder2(),
                                               arcee(),
                                               nemotron(),
                                               jais2(),
                                               persimmon(),
                                               bloom(),
                                               mpt(),
                                               opt(),
                                               gpt_neo(),
                                               gpt_bigcode(),
                                               granitemoe(),
                                               hyperclovax(),
                                               vaultgemma(),
                                               nomic_bert(),
                                               bert_of_gguf(),
                                               modernbert(),
                                               gte(),
                                               gte_of_authors(),
                                               gte_of_snowflake(),
                                               eurobert(),
                                               embedding_gemma2(),
                                               jina_embeddings_v3(),
                                               ultrabert(),
                                               t5(),
                                               mt5(),
                                               neobert(),
                                               roberta(),
                                               xlm_roberta(),
                                               camembert(),
                                               data2vec_text(),
                                               megatron_bert(),
                                               roberta_prelayernorm(),
                                               xlm_roberta_xl(),
                                               distilbert(),
                                               electra(),
                                               mpnet(),
                                               deberta_v2(),
                                               deberta(),
                                               ernie(),
                                               esm(),
                                               esm1(),
                                               albert(),
                                               nomic_bert_moe(),
                                               jina_bert(),
                                               jina_bert_for_code(),
                                               jina_xlm_roberta_with_rotation(),
                                               jina_xlm_roberta()};
  return all;
}

}  // namespace rf
