// The table of model types (families.h), as transformers 5.23 computes them.
#include "families.h"

#include <algorithm>
#include <utility>

namespace rf {
namespace {

constexpr RotaryLayout kPaired = RotaryLayout::kPairs;
constexpr RotarySize kPart = RotarySize::kShare;
constexpr std::string_view kPartKey = "partial_rotary_factor";
constexpr std::string_view kLatentKey = "qk_rope_head_dim";

constexpr RotaryFamily kFamilies[] = {
    {.model_type = "apertus", .base = 12e6},
    {.model_type = "arcee"},
    {.model_type = "bitnet", .base = 500e3},
    {.model_type = "chameleon"},
    {.model_type = "codegen",
     .layout = kPaired,
     .size = RotarySize::kDim,
     .part = 64,
     .part_key = "rotary_dim",
     .base_key = "",
     .reads_scaling = false},
    {.model_type = "cohere", .layout = kPaired, .base = 500e3},
    {.model_type = "cohere2", .layout = kPaired, .unrotated = UnrotatedLayers::kFull},
    {.model_type = "cwm", .base = 1e6, .head_dim = 128},
    {.model_type = "deepseek_v2",
     .layout = kPaired,
     .head_key = kLatentKey,
     .head_dim = 64,
     .plain_projections = false},
    {.model_type = "deepseek_v3",
     .layout = kPaired,
     .head_key = kLatentKey,
     .head_dim = 64,
     .pairs_key = "rope_interleave",
     .plain_projections = false},
    {.model_type = "diffllama", .plain_projections = false},
    {.model_type = "ernie4_5", .layout = kPaired, .base = 500e3, .head_dim = 128},
    {.model_type = "ernie4_5_moe", .layout = kPaired, .base = 500e3},
    {.model_type = "esm", .reads_scaling = false},
    {.model_type = "eurobert"},
    {.model_type = "exaone4", .unrotated = UnrotatedLayers::kFullIfWindow},
    {.model_type = "falcon", .head_key = ""},
    {.model_type = "flex_olmo", .base = 500e3},
    {.model_type = "gemma", .head_dim = 256},
    {.model_type = "gemma2", .head_dim = 256},
    {.model_type = "gemma3_text",
     .base = 1e6,
     .head_dim = 256,
     .layers = LayerTypes::kTwo,
     .local_base = 1e4,
     .local_base_key = "rope_local_base_freq"},
    {.model_type = "gemma3n_text",
     .base = 1e6,
     .head_dim = 256,
     .layers = LayerTypes::kTwo,
     .local_base = 1e4,
     .local_base_key = "rope_local_base_freq"},
    {.model_type = "glm", .layout = kPaired, .size = kPart, .part = 0.5, .part_key = kPartKey, .head_dim = 128},
    {.model_type = "glm4", .layout = kPaired, .size = kPart, .part = 0.5, .part_key = kPartKey, .head_dim = 128},
    {.model_type = "glm4_moe", .size = kPart, .part = 0.5, .part_key = kPartKey},
    {.model_type = "gpt_neox",
     .size = kPart,
     .part = 0.25,
     .part_key = "rotary_pct",
     .base_key = "rotary_emb_base",
     .head_key = ""},
    {.model_type = "gpt_neox_japanese",
     .size = kPart,
     .part_key = "rotary_pct",
     .base_key = "rotary_emb_base",
     .head_key = ""},
    {.model_type = "gpt_oss", .base = 150e3, .head_dim = 64},
    {.model_type = "gptj",
     .layout = kPaired,
     .size = RotarySize::kDim,
     .part = 64,
     .part_key = "rotary_dim",
     .base_key = "",
     .reads_scaling = false},
    {.model_type = "granite"},
    {.model_type = "granitemoe"},
    {.model_type = "granitemoeshared"},
    {.model_type = "gte", .base = 160e3},
    {.model_type = "helium", .layout = kPaired, .base = 100e3, .head_dim = 128},
    {.model_type = "jina_embeddings_v3", .base = 20e3},
    {.model_type = "llama"},
    {.model_type = "llama4_text",
     .layout = kPaired,
     .base = 500e3,
     .head_dim = 128,
     .unrotated = UnrotatedLayers::kListed},
    {.model_type = "minicpm3", .head_key = kLatentKey, .head_dim = 32, .plain_projections = false},
    {.model_type = "ministral"},
    {.model_type = "ministral3", .head_dim = 128},
    {.model_type = "mistral"},
    {.model_type = "mixtral", .base = 1e6},
    {.model_type = "mllama_text_model", .base = 500e3},
    {.model_type = "modernbert",
     .base = 160e3,
     .base_key = "global_rope_theta",
     .layers = LayerTypes::kTwoScaled,
     .local_base = 1e4,
     .local_base_key = "local_rope_theta"},
    {.model_type = "modernbert-decoder",
     .base = 160e3,
     .base_key = "global_rope_theta",
     .layers = LayerTypes::kTwoScaled,
     .local_base = 1e4,
     .local_base_key = "local_rope_theta"},
    {.model_type = "moshi"},
    {.model_type = "nemotron", .size = kPart, .part = 0.5, .part_key = kPartKey},
    {.model_type = "nomic_bert", .base = 1000},
    {.model_type = "olmo"},
    {.model_type = "olmo2"},
    {.model_type = "olmo3", .base = 500e3, .layers = LayerTypes::kTwo, .local_base = 500e3},
    {.model_type = "olmoe"},
    {.model_type = "persimmon", .size = kPart, .part = 0.5, .part_key = kPartKey},
    {.model_type = "phi", .size = kPart, .part = 0.5, .part_key = kPartKey},
    {.model_type = "phi3", .size = kPart, .part_key = kPartKey},
    {.model_type = "phimoe", .base = 1e6},
    {.model_type = "qwen2"},
    {.model_type = "qwen2_5_vl_text", .base = 1e6},
    {.model_type = "qwen2_moe"},
    {.model_type = "qwen2_vl_text", .base = 1e6},
    {.model_type = "qwen3", .head_dim = 128},
    {.model_type = "qwen3_moe"},
    {.model_type = "qwen3_next",
     .size = kPart,
     .part = 0.25,
     .part_key = kPartKey,
     .head_dim = 256,
     .plain_projections = false},
    {.model_type = "roformer", .layout = kPaired, .base_key = "", .head_key = "", .reads_scaling = false},
    {.model_type = "seed_oss", .head_dim = 128},
    {.model_type = "smollm3", .base = 2e6, .unrotated = UnrotatedLayers::kListed},
    {.model_type = "stablelm", .size = kPart, .part = 0.25, .part_key = kPartKey},
    {.model_type = "starcoder2"},
    {.model_type = "vaultgemma", .head_dim = 256},
};

constexpr std::string_view kLearned = "learned vectors at the input";
constexpr std::string_view kDistances = "terms by distance";
constexpr std::string_view kOrder = "the order of its recurrence";
constexpr std::pair<std::string_view, std::string_view> kOthers[] = {
    {"albert", kLearned},    {"bart", kLearned},         {"bert", kLearned},       {"bloom", "ALiBi"},
    {"deberta", kDistances}, {"deberta-v2", kDistances}, {"distilbert", kLearned}, {"electra", kLearned},
    {"gpt2", kLearned},      {"gpt_bigcode", kLearned},  {"gpt_neo", kLearned},    {"mamba", kOrder},
    {"mamba2", kOrder},      {"mpnet", kDistances},      {"mpt", "ALiBi"},         {"nezha", kDistances},
    {"opt", kLearned},       {"roberta", kLearned},      {"rwkv", kOrder},         {"t5", kDistances},
    {"vit", kLearned},       {"xlm-roberta", kLearned},  {"xlnet", kDistances},
};

}  // namespace

std::span<const RotaryFamily> rotary_families() {
  return kFamilies;
}

const RotaryFamily* find_rotary_family(std::string_view model_type) {
  const auto* found = std::ranges::find(kFamilies, model_type, &RotaryFamily::model_type);
  return found == std::end(kFamilies) ? nullptr : found;
}

std::string_view other_encoding(std::string_view model_type) {
  for (const auto& [type, encoding] : kOthers) {
    if (type == model_type) return encoding;
  }
  return "";
}

}  // namespace rf
