// Reads decoders and encoders from GGUF files (foreign_models.h): converts llama.cpp's keys to the keys of config.json,
// which the family then reads.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "families/family.h"
#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "rf/model/foreign_models.h"
#include "rotary_report/parts.h"

namespace rf {

namespace {

using nlohmann::json;

// Keys that follow the architecture and a dot, and what config.json calls them.
constexpr std::pair<const char*, const char*> kGgufKeys[] = {
    {"embedding_length", "hidden_size"},
    {"block_count", "num_hidden_layers"},
    {"feed_forward_length", "intermediate_size"},
    {"use_parallel_residual", "use_parallel_residual"},
    {"attention.sliding_window", "sliding_window"},
    {"attention.sliding_window", "local_attention"},
    {"attention.sliding_window_pattern", "global_attn_every_n_layers"},
    {"hidden_act", "hidden_activation"},
    {"attn_logit_softcapping", "attn_logit_softcapping"},
    {"final_logit_softcapping", "final_logit_softcapping"},
    {"logit_scale", "logit_scale"},
    {"logit_scale", "logits_scaling"},
    {"residual_scale", "residual_multiplier"},
    {"embedding_scale", "embedding_multiplier"},
    {"attention.scale", "attention_multiplier"},
    {"expert_count", "num_local_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
};

constexpr std::string_view kGemmaEmbedding = "gemma-embedding";  // Gemma 3 that reads both directions

std::string gguf_architectures() {
  std::vector<std::string_view> names = {kGemmaEmbedding};
  for (const ModelFamily& each : model_families()) {
    if (!each.gguf.empty()) names.push_back(each.gguf);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

// The layers with windows: a list, or all but every n-th.
void add_window_pattern(const json& metadata, const std::string& prefix, json& object) {
  const json* const pattern = given(metadata, prefix + "attention.sliding_window_pattern");
  if (pattern != nullptr && pattern->is_number_integer()) object["sliding_window_pattern"] = *pattern;
  if (pattern == nullptr || !pattern->is_array()) return;
  object["layer_types"] = json::array();
  for (const json& slides : *pattern)
    object["layer_types"].push_back(slides == true || slides == 1 ? "sliding_attention" : "full_attention");
}

// The config.json that the model would have. Like llama.cpp, recognises the two largest Gemmas by their number of
// layers: they scale scores differently.
json config_of_metadata(const json& metadata, const std::string& type, const RotaryReport& report) {
  const std::string prefix = type + ".";
  json object = {{"num_attention_heads", report.heads}, {"norm_topk_prob", type != "olmoe"}};
  for (const auto& [theirs, ours] : kGgufKeys) {
    if (const json* const value = given(metadata, prefix + theirs); value != nullptr) object[ours] = *value;
  }
  if (type == kGemmaEmbedding) object["use_bidirectional_attention"] = true;
  add_window_pattern(metadata, prefix, object);
  if (!object.contains("sliding_window") && type != "gemma2") {
    object["sliding_window"] = nullptr;
    object["layer_types"] = std::vector<std::string>(static_cast<size_t>(report.layers), "full_attention");
  }
  if (type == "modern-bert") object.erase("sliding_window");  // local_attention has it
  const bool by_width = (type == "gemma2" && report.layers == 46) || (type == "gemma3" && report.layers == 62);
  const bool has_width = by_width && object.contains("hidden_size") && object["hidden_size"].is_number_integer();
  object["query_pre_attn_scalar"] =
      has_width ? object["hidden_size"].get<int64_t>() / std::max<int64_t>(report.heads, 1) : report.head_size;
  return object;
}

// Reads the blocks' properties off the file's tensors. Norms are stored as multipliers, and matrices as [out, in].
void read_gguf_blocks(const io::GgufFile& file, ModelConfig& config) {
  BlockSpec& block = config.block;
  const bool fused = file.find("blk.0.attn_qkv.weight") != nullptr;
  block.fused_qkv = fused ? BlockSpec::Fused::kParts : BlockSpec::Fused::kNone;
  block.qkv_bias = file.find(fused ? "blk.0.attn_qkv.bias" : "blk.0.attn_q.bias") != nullptr;
  block.output_bias = file.find("blk.0.attn_output.bias") != nullptr;
  block.mlp_bias = file.find("blk.0.ffn_down.bias") != nullptr;
  block.norm_plus_one = block.transposed = false;
  if (block.head_norm != BlockSpec::HeadNorm::kShared) {
    block.head_norm = BlockSpec::HeadNorm::kStacked;
    block.query_key_norm = file.find("blk.0.attn_q_norm.weight") != nullptr;
  }
  block.expert_files = BlockSpec::ExpertFiles::kStacked;
  block.expert_bias = file.find("blk.0.ffn_gate_inp.bias") != nullptr;
  config.tie_word_embeddings = file.find("output.weight") == nullptr;
}

// llama.cpp's encoders have the first token type, of the file's; no file has the pooler.
void read_gguf_encoder(const io::GgufFile& file, const Keys& keys, const ModelFamily& family, ModelConfig& config) {
  const io::GgufTensor* const types = file.find("token_types.weight");
  config.type_vocab_size = types == nullptr || types->shape.size() != 2 ? 0 : static_cast<int64_t>(types->shape[1]);
  config.heads.bare_pooler = false;
  if (family.any_activation) config.hidden_act = activation_in(keys, "hidden_activation", family.activation);
  config.position_encodings = {{.type = config.positions.learned ? "learned" : "none", .options = "{}"}};
  config.architectures = {fmt::format("{}Model", family.classes)};
}

}  // namespace

ModelConfig read_decoder_config(const std::string& path, const io::GgufFile& file) {
  const Keys metadata(file.metadata(), path, "");
  const std::string type = metadata.text("general.architecture");
  const ModelFamily* family = type == kGemmaEmbedding ? find_family(&ModelFamily::model_type, "gemma3_text")
                                                      : find_family(&ModelFamily::gguf, type);
  if (family == nullptr) {
    fail(path, "general.architecture must be {}, whose blocks this program has, got {}", gguf_architectures(),
         type.empty() ? "none" : io::printable(type));
  }
  const auto key = [&](const char* name) { return fmt::format("{}.{}", type, name); };
  const bool has_experts = metadata.integer({key("expert_count").c_str()}, 0, kMaxExtent) > 0;
  if (has_experts && type == "llama") family = find_family(&ModelFamily::model_type, "mixtral");
  if (has_experts && std::ranges::find(family->keys, "num_experts_per_tok") == family->keys.end()) {
    fail(path, "the model must have no experts, got {} {}", key("expert_count"),
         shown(file.metadata()[key("expert_count")]));
  }
  const bool is_encoder = family->heads == Family::kBert, is_causal = !is_encoder && type != kGemmaEmbedding;
  if (metadata.boolean(key("attention.causal").c_str(), is_causal) != is_causal)
    fail(path, "{} must be {} for {}, got {}", key("attention.causal"), is_causal,
         is_causal ? "a decoder" : "an encoder", !is_causal);
  for (const auto& [name, only] : {std::pair("attention.clamp_kqv", 0), {"attention.max_alibi_bias", 8}}) {
    const json* const value = given(file.metadata(), key(name));
    if (value != nullptr && *value != only)
      fail(path, "{} must be absent or {}, got {}", key(name), only, shown(*value));
  }
  RotaryReport report;
  if (family->rotates) {
    report = report_of_gguf(file, path);
  } else {
    report.heads = metadata.integer({key("attention.head_count").c_str()}, 1, kMaxHeads);
    report.length = extent(metadata, key("context_length"));
  }
  const io::GgufTensor* const embedding = file.find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2) {
    fail(path, "the file must have a matrix token_embd.weight, got {}",
         embedding == nullptr ? "none" : "another shape");
  }
  ModelConfig config = config_of(*family, type == family->gguf ? type : family->model_type);
  config.vocab_size = static_cast<int64_t>(std::min<uint64_t>(embedding->shape[1], kMaxExtent));
  config.hidden_size = config.embedding_size = extent(metadata, key("embedding_length"));
  config.num_hidden_layers = report.layers = extent(metadata, key("block_count"), kMaxForeignLayers);
  config.intermediate_size = extent(metadata, key("feed_forward_length"));
  config.num_attention_heads = report.heads;
  config.num_key_value_heads = report.kv_heads;
  if (report.heads == 0) fail(path, "{} must be one number for all layers, got none", key("attention.head_count"));
  check_heads(config, path);
  const bool rms = config.block.norm == NormKind::kRms;
  config.layer_norm_eps = metadata.number(
      key(rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon").c_str(), 1e-5, kEpsRange);
  const json object = with_defaults(config_of_metadata(file.metadata(), type, report), *family, path, path);
  const Keys keys(object, path, "");
  family->read(keys, config);
  read_gguf_blocks(file, config);
  if (is_encoder) read_gguf_encoder(file, keys, *family, config);
  if (family->rotates) {
    read_rotation(report, path, *family, config);
    if (!is_encoder) read_windows(object, keys, *family, config);
    leave_unrotated(report, config);
  } else {
    config.max_position_embeddings = report.length;
  }
  for (const int32_t id : io::gguf_end_tokens(file)) {
    if (id >= config.vocab_size) {
      fail(path, "a token that ends texts must have one of the {} rows of token_embd.weight, got token {}",
           config.vocab_size, id);
    }
    config.stop_ids.push_back(id);
  }
  return config;
}

}  // namespace rf
