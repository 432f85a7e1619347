// The table of model types (parts.h), as transformers 5.23 computes them.
#include <algorithm>
#include <utility>

#include "parts.h"

namespace rf {
namespace {

constexpr RotaryLayout kPairs = RotaryLayout::kPairs;
constexpr RotarySize kPart = RotarySize::kShare;
constexpr std::string_view kLatentKey = "qk_rope_head_dim";

constexpr RotaryFamily kGptJ = {.model_type = "gptj",
                                .layout = kPairs,
                                .size = RotarySize::kDim,
                                .part = 64,
                                .part_key = "rotary_dim",
                                .base_key = "",
                                .reads_scaling = false};
constexpr RotaryFamily kGemma3 = {.model_type = "gemma3_text",
                                  .length = 131072,
                                  .base = 1e6,
                                  .head_dim = 256,
                                  .layers = LayerTypes::kTwo,
                                  .local_base = 1e4,
                                  .local_base_key = "rope_local_base_freq"};
constexpr RotaryFamily kModernBert = {.model_type = "modernbert",
                                      .length = 8192,
                                      .base = 160e3,
                                      .base_key = "global_rope_theta",
                                      .layers = LayerTypes::kTwoScaled,
                                      .local_base = 1e4,
                                      .local_base_key = "local_rope_theta"};

constexpr RotaryFamily named(std::string_view model_type, RotaryFamily like, int64_t length) {
  like.model_type = model_type;
  like.length = length;
  return like;
}

constexpr RotaryFamily kFamilies[] = {
    {.model_type = "apertus", .length = 65536, .base = 12e6},
    {.model_type = "arcee", .length = 4096},
    {.model_type = "bitnet", .base = 500e3},
    {.model_type = "chameleon", .length = 4096},
    named("codegen", kGptJ, 2048),
    {.model_type = "cohere", .length = 8192, .layout = kPairs, .base = 500e3},
    {.model_type = "cohere2", .length = 8192, .layout = kPairs, .unrotated = UnrotatedLayers::kFull},
    {.model_type = "cwm", .length = 131072, .base = 1e6, .head_dim = 128},
    {.model_type = "deepseek_v2", .layout = kPairs, .head_key = kLatentKey, .head_dim = 64, .plain_qkv = false},
    {.model_type = "deepseek_v3",
     .length = 4096,
     .layout = kPairs,
     .head_key = kLatentKey,
     .head_dim = 64,
     .pairs_key = "rope_interleave",
     .plain_qkv = false},
    {.model_type = "diffllama", .plain_qkv = false},
    {.model_type = "ernie4_5", .length = 131072, .layout = kPairs, .base = 500e3, .head_dim = 128},
    {.model_type = "ernie4_5_moe", .length = 131072, .layout = kPairs, .base = 500e3},
    {.model_type = "esm", .length = 1026, .reads_scaling = false},
    {.model_type = "eurobert", .length = 8192},
    {.model_type = "exaone4", .unrotated = UnrotatedLayers::kFullIfWindow},
    {.model_type = "falcon", .head_key = ""},
    {.model_type = "flex_olmo", .length = 4096, .base = 500e3},
    {.model_type = "gemma", .length = 8192, .head_dim = 256},
    {.model_type = "gemma2", .length = 8192, .head_dim = 256},
    kGemma3,
    named("gemma3n_text", kGemma3, 32768),
    {.model_type = "glm", .length = 131072, .layout = kPairs, .size = kPart, .part = 0.5, .head_dim = 128},
    {.model_type = "glm4", .length = 131072, .layout = kPairs, .size = kPart, .part = 0.5, .head_dim = 128},
    {.model_type = "glm4_moe", .length = 131072, .size = kPart, .part = 0.5},
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
    {.model_type = "gpt_oss", .length = 131072, .base = 150e3, .head_dim = 64},
    kGptJ,
    {.model_type = "granite"},
    {.model_type = "granitemoe"},
    {.model_type = "granitemoeshared"},
    {.model_type = "gte", .length = 8192, .base = 160e3},
    {.model_type = "helium", .length = 4096, .layout = kPairs, .base = 100e3, .head_dim = 128},
    {.model_type = "jina_embeddings_v3", .length = 8194, .base = 20e3},
    {.model_type = "llama"},
    {.model_type = "llama4_text",
     .length = 131072,
     .layout = kPairs,
     .base = 500e3,
     .head_dim = 128,
     .unrotated = UnrotatedLayers::kListed},
    {.model_type = "minicpm3", .length = 32768, .head_key = kLatentKey, .head_dim = 32, .plain_qkv = false},
    {.model_type = "ministral", .length = 131072},
    {.model_type = "ministral3", .length = 262144, .head_dim = 128},
    {.model_type = "mistral", .length = 131072},
    {.model_type = "mixtral", .length = 131072, .base = 1e6},
    {.model_type = "mllama_text_model", .length = 131072, .base = 500e3},
    kModernBert,
    named("modernbert-decoder", kModernBert, 8192),
    {.model_type = "moshi", .length = 3000},
    {.model_type = "nemotron", .length = 4096, .size = kPart, .part = 0.5},
    {.model_type = "nomic_bert", .base = 1000},
    {.model_type = "olmo"},
    {.model_type = "olmo2"},
    {.model_type = "olmo3", .base = 500e3, .layers = LayerTypes::kTwo, .local_base = 500e3},
    {.model_type = "olmoe", .length = 4096},
    {.model_type = "persimmon", .length = 16384, .size = kPart, .part = 0.5},
    {.model_type = "phi", .size = kPart, .part = 0.5},
    {.model_type = "phi3", .length = 4096, .original_length = 4096, .size = kPart},
    {.model_type = "phimoe", .length = 131072, .base = 1e6},
    {.model_type = "qwen2", .length = 32768},
    {.model_type = "qwen2_5_vl_text", .length = 32768, .base = 1e6},
    {.model_type = "qwen2_moe", .length = 32768},
    {.model_type = "qwen2_vl_text", .length = 32768, .base = 1e6},
    {.model_type = "qwen3", .length = 32768, .head_dim = 128},
    {.model_type = "qwen3_moe", .length = 32768},
    {.model_type = "qwen3_next", .length = 32768, .size = kPart, .part = 0.25, .head_dim = 256, .plain_qkv = false},
    {.model_type = "roformer",
     .length = 1536,
     .layout = kPairs,
     .base_key = "",
     .head_key = "",
     .reads_scaling = false},
    {.model_type = "seed_oss", .length = 524288, .head_dim = 128},
    {.model_type = "smollm3", .length = 32768, .base = 2e6, .unrotated = UnrotatedLayers::kListed},
    {.model_type = "stablelm", .length = 4096, .size = kPart, .part = 0.25},
    {.model_type = "starcoder2", .length = 4096},
    {.model_type = "ultrabert", .length = 32768, .base = 2560e3, .layers = LayerTypes::kTwo, .local_base = 1e4},
    {.model_type = "vaultgemma", .length = 8192, .head_dim = 256},
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

std::span<const RotaryFamily> rotary_families() { return kFamilies; }

const RotaryFamily* find_rotary_family(std::string_view model_type) {
  if (model_type == "llama_bidirec") model_type = "llama";  // which is not in transformers
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
