// jina-embeddings-v3 (Sturua et al. 2024, arXiv 2409.10173): XLM-RoBERTa's layers and heads with rotation in place of
// learned positions. Files of the authors' own class have model_type xlm-roberta: with rotation (also jina-colbert-v2)
// and adapters for tasks, or with XLM-RoBERTa's positions (jina-reranker-v2).
#include <algorithm>

#include "../rotary_report/parts.h"
#include "family.h"
#include "rf/io/error.h"

namespace rf {

ModelFamily xlm_roberta();

namespace {

using nlohmann::json;

constexpr const char* kPositionType = "position_embedding_type";

// Replaces the authors' names by the supported ones.
void rewrite_jina(json& object, const std::string&) {
  json& classes = object["architectures"];
  if (classes == json::array({"XLMRobertaLoRA"})) classes = json::array({"XLMRobertaModel"});
  if (given(object, kPositionType) != nullptr && object[kPositionType] == "rotary")
    object["model_type"] = "jina_embeddings_v3";
}

std::string task_prompt(const json* prompts, const std::string& task, const std::string& where) {
  if (prompts == nullptr || !prompts->contains(task)) return "";
  const json& prompt = prompts->at(task);
  if (!prompt.is_string()) fail(where, "task_instructions must have a text for each task, got {}", shown(prompt));
  return prompt.get<std::string>();
}

void read_adapters(const Keys& keys, ModelConfig& config) {
  const json* const tasks = keys.list("lora_adaptations");
  if (tasks == nullptr || tasks->empty()) return;
  AdapterSpec& adapters = config.adapters.emplace();
  for (const json& task : *tasks) {
    const bool known = task.is_string() && std::ranges::find(adapters.tasks, task.get<std::string>(),
                                                             &AdapterSpec::Adapter::task) != adapters.tasks.end();
    if (!task.is_string() || known)
      fail(keys.file(), "lora_adaptations must be different names, got {}", shown(*tasks));
    const std::string name = task.get<std::string>();
    adapters.tasks.push_back({name, task_prompt(keys.object("task_instructions"), name, keys.file())});
  }
  adapters.rank = keys.integer({"lora_rank"}, 1, kMaxWidth);
  if (adapters.rank == 0) fail(keys.file(), "lora_rank must be given with lora_adaptations, got none");
  adapters.scale = keys.number("lora_alpha", 1, {-1e6, 1e6}) / static_cast<double>(adapters.rank);
}

}  // namespace

ModelFamily jina_embeddings_v3() {
  static const std::vector<ModuleName> kModules =
      joined({{"embeddings.LayerNorm", "emb_ln", ""},
              {"encoder.layer.{}.attention.self.query_key_value", "encoder.layers.{}.mixer.Wqkv", ""},
              {"encoder.layer.{}.attention.output.dense", "encoder.layers.{}.mixer.out_proj", ""},
              {"encoder.layer.{}.attention.output.LayerNorm", "encoder.layers.{}.norm1", ""},
              {"encoder.layer.{}.intermediate.dense", "encoder.layers.{}.mlp.fc1", ""},
              {"encoder.layer.{}.output.dense", "encoder.layers.{}.mlp.fc2", ""},
              {"encoder.layer.{}.output.LayerNorm", "encoder.layers.{}.norm2", ""}},
             roberta_modules());
  return {.model_type = "jina_embeddings_v3",
          .classes = "JinaEmbeddingsV3",
          .prefix = "roberta.",
          .berts_names = true,
          .modules = kModules,
          .heads = Family::kBert,
          .block = {.fused_qkv = BlockSpec::Fused::kParts},
          .layers_of_heads = roberta_heads(),
          .classless = {Head::kMultipleChoice},
          .activation = Activation::kGelu,
          .any_activation = true,
          .eps_key = "layer_norm_eps",
          .eps = 1e-5,
          .defaults = R"({"type_vocab_size": 1, "pad_token_id": 1, "hidden_dropout_prob": 0.1,
                          "attention_probs_dropout_prob": 0.1})"};
}

ModelFamily jina_xlm_roberta_with_rotation() {
  ModelFamily family = jina_embeddings_v3();
  family.model_type = "xlm-roberta with rotation";
  family.variant_of = "xlm-roberta";
  family.is_variant = [](const json& object) {
    const json* const positions = given(object, kPositionType);
    return positions != nullptr && *positions == "rotary";
  };
  family.classes = "XLMRoberta";
  family.renamed_keys = {{"rotary_emb_base", "rope_theta"}};
  family.keys = {kPositionType,
                 "auto_map",
                 "emb_pooler",
                 "matryoshka_dimensions",
                 "load_trained_adapters",
                 "lora_adaptations",
                 "task_instructions",
                 "lora_rank",
                 "lora_alpha",
                 "lora_dropout_p",
                 "lora_main_params_trainable"};
  family.off_keys = {"truncate_dim"};
  family.rewrite = rewrite_jina;
  family.read = read_adapters;
  return family;
}

ModelFamily jina_xlm_roberta() {
  ModelFamily family = jina_xlm_roberta_with_rotation();
  family.model_type = "xlm-roberta with fused projections";
  family.is_variant = [](const json& object) {
    return has_own_class(object, "modeling_xlm_roberta.") || has_own_class(object, "modeling_lora.");
  };
  family.rotates = false;
  family.positions = xlm_roberta().positions;
  family.renamed_keys = {};
  std::erase(family.keys, kPositionType);
  family.defaults = xlm_roberta().defaults;
  family.read = [](const Keys& keys, ModelConfig& config) {
    xlm_roberta().read(keys, config);
    read_adapters(keys, config);
  };
  return family;
}

}  // namespace rf
