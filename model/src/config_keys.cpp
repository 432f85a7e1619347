// The data behind names.h, with its sources: which keys of config.json are harmless, and which change a result.
#include "names.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "rf/io/error.h"
#include "rf/io/nearest_name.h"
#include "rf/io/warning.h"

namespace rf {
namespace {

using nlohmann::json;

// About the file: where it came from and in which dtype its parameters were.
constexpr std::string_view kDropped[] = {"_name_or_path", "name_or_path", "_commit_hash", "dtype", "torch_dtype"};

// Keys of other families' classes; they are mistakes in a file that is written for this program.
constexpr std::string_view kOfOtherFamilies[] = {
    "layer_norm_eps",          "rms_norm_eps",      "summary_type",       "summary_use_proj",
    "summary_activation",      "d_model",           "encoder_layers",     "encoder_ffn_dim",
    "encoder_attention_heads", "encoder_layerdrop", "decoder_layers",     "decoder_ffn_dim",
    "decoder_attention_heads", "decoder_layerdrop", "decoder_vocab_size", "share_encoder_decoder_embeddings"};

// A test reads the attributes of PreTrainedConfig in the installed transformers and checks that each is listed here, is
// read, or changes a result (tests/cli/test_model_files.py).
constexpr std::string_view kHarmless[] = {
    // Transformers 2 to 4, PretrainedConfig: outputs of a call, export and bookkeeping.
    "transformers_version", "return_dict", "use_return_dict", "output_hidden_states", "output_attentions",
    "output_past", "use_cache", "torchscript", "tf_legacy_loss", "gradient_checkpointing", "use_bfloat16",
    "chunk_size_feed_forward", "xla_device", "is_composition", "finetuning_task", "task_specific_params",
    "tokenizer_class", "prefix", "_num_labels", "num_labels", "id2label", "label2id", "problem_type",
    "attn_implementation", "_attn_implementation", "_attn_implementation_autoset", "_attn_implementation_internal",
    "_flash_attn_2_enabled", "_output_attentions", "_from_model_config", "base_model_tp_plan",
    "keys_to_ignore_at_inference", "tie_encoder_decoder",
    // Transformers 5, PreTrainedConfig.
    "_experts_implementation", "_experts_implementation_internal", "experts_implementation", "_post_init_done",
    "ignore_keys_at_rope_validation", "base_model_pp_plan", "base_model_fsdp_plan", "distributed_config",
    "transformers_weights", "_auto_class",
    // Transformers: token ids.
    "bos_token_id", "eos_token_id", "eos_token_ids", "pad_token_id", "sep_token_id", "cls_token_id", "mask_token_id",
    "unk_token_id", "eod_token_id", "decoder_start_token_id", "image_token_id", "video_token_id",
    // Transformers 4: settings of generation in model configs.
    "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty",
    "temperature", "top_k", "top_p", "typical_p", "penalty_alpha", "repetition_penalty", "length_penalty",
    "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "output_scores",
    "return_dict_in_generate", "forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values",
    "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens", "num_logits_to_keep",
    "max_new_tokens",
    // Transformers, of model types: training, initial values and ways to compute the same.
    "attention_dropout", "attention_probs_dropout_prob", "activation_dropout", "hidden_dropout", "hidden_dropout_prob",
    "dropout", "classifier_dropout", "classifier_dropout_prob", "resid_pdrop", "embd_pdrop", "emb_pdrop", "attn_pdrop",
    "resid_dropout", "residual_dropout", "embed_dropout", "embedding_dropout", "mlp_dropout", "pooler_dropout",
    "qa_dropout", "seq_classif_dropout", "summary_first_dropout", "summary_last_dropout", "initializer_range",
    "initializer_factor", "initializer_cutoff_factor", "init_std", "embed_init_std", "init_device",
    "rescale_prenorm_residual", "router_aux_loss_coef", "aux_loss_coef", "output_router_logits", "router_jitter_noise",
    "pretraining_tp", "slow_but_exact", "onnx_export", "reference_compile", "deterministic_flash_attn",
    "attention_softmax_in_fp32", "softmax_in_fp32", "max_window_layers", "ffn_dim_multiplier", "multiple_of",
    "use_mambapy", "use_mamba_kernels", "tie_weights_",
    // Files of ALBERT, which no class reads.
    "down_scale_factor", "gap_size", "layers_to_keep", "net_structure_type", "num_memory_blocks",
    // The pooler with options of converted Chinese BERT files, which no class reads.
    "directionality", "pooler_activation", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers",
    "pooler_size_per_head", "pooler_type", "summary_proj_to_labels",
    // Lengths that tokenizers and training programs copy into the file.
    "model_max_length", "max_seq_length", "max_seq_len", "max_sequence_length", "seq_length", "seq_len", "n_ctx",
    "max_len", "padding_side", "truncation_side",
    // Deepset (FARM and Haystack), simpletransformers, AdapterHub.
    "language", "name", "adapters", "model_name", "model_name_or_path", "task", "lang", "do_lower_case", "vocab_file",
    "layer_norm_type_name", "train_batch_size", "model_card", "tags", "license",
    // Unsloth, axolotl, peft.
    "unsloth_version", "unsloth_fixed", "unsloth_training_args", "peft_version", "trained_with", "axolotl_config",
    // Transformers.js, optimum, ONNX and inference servers.
    "transformers.js_config", "optimum_version", "onnx_config", "export_model_type", "neuron", "openvino_config",
    "library_name", "inference", "custom_pipelines", "use_io_binding",
    // Sentence-transformers: the activation of a CrossEncoder, which its reader reads.
    "sentence_transformers", "sbert_ce_default_activation_function", "sbert_version",
    // Switches between kernels that compute the same.
    "use_flash_attn", "use_flash_attention", "use_flash_attention_2", "use_memory_efficient_attention", "use_xformers",
    "unpad_inputs", "fuse_norm", "fuse_cross_entropy", "fuse_swiglu", "fused_mlp", "fused_bias_fc",
    "fused_dropout_add_ln", "recompute", "sequence_parallel", "tensor_parallel_degree"};

bool is_off(const json& value) {
  return value == false || value == 0 || value == "" || (value.is_structured() && value.empty());
}

bool is_near(const json& value, double wanted) {
  constexpr double kShare = 1e-6;  // a rounded decimal of it
  return value.is_number() && wanted != 0 && std::abs(value.get<double>() - wanted) <= kShare * std::abs(wanted);
}

bool are_all(const json& list, auto&& holds) { return list.is_array() && std::ranges::all_of(list, holds); }

bool is_same_activation(const json& value, const KeyContext& context) {
  const auto activation = value.is_string() ? activation_of_name(value.get<std::string>()) : std::nullopt;
  return activation && activation == activation_of_name(context.activation);
}

bool names_no_model(const json& value) {
  return value.is_object() && std::ranges::none_of(value.items(), [](const auto& item) {
           return item.key().starts_with("AutoModel") || item.key().starts_with("TFAuto");
         });
}

struct ChangingKeys {
  bool (*changes_nothing)(const json& value, const KeyContext& context);  // of a value that is not null
  std::string_view rule;                                                  // what the message asks for
  std::vector<std::string_view> keys;
};

// From the configuration and modelling files of transformers 4.57 and 5.23, and of models that ship their own code.
const std::vector<ChangingKeys>& changing_keys() {
  using Context = const KeyContext&;
  static const std::vector<ChangingKeys> all = {
      {[](const json& x, Context) { return is_off(x); },
       "absent, null, false, 0 or empty, since it changes the result and is not computed",
       {// Soft caps, sinks and temperatures of scores and logits: Gemma 2, gpt-oss, MiMo, Llama 4, Qwen 1.
        "final_logit_softcapping", "attn_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap",
        "gate_soft_cap", "router_logit_softcapping", "attention_sink", "attention_sinks", "attn_sinks",
        "attention_sink_size", "use_attention_sinks", "add_swa_attention_sink_bias", "add_full_attention_sink_bias",
        "learnable_sink_init", "attn_temperature_tuning", "attention_temperature", "use_logn_attn",
        "logn_attention_scale", "logn_attention_clip1", "use_dynamic_ntk", "scale_attn_by_inverse_layer_idx",
        "scale_depth", "clip_qkv", "swiglu_limit", "swiglu_alpha", "ssm_multipliers", "mlp_multipliers",
        "rescale_every", "rescale_embeddings", "scale_embedding", "mup_enabled", "use_mup",
        // Norms in other places.
        "qk_layernorm", "qk_norm", "use_qk_norm", "use_post_norm", "post_norm", "use_sandwich_norm", "sandwich_norm",
        "apply_residual_connection_post_layernorm", "do_layer_norm_before", "normalize_before", "layernorm_embedding",
        "emb_layer_norm_before", "normalize_embedding", "add_final_layer_norm", "zero_centered_gamma",
        // Other blocks.
        "alibi", "use_alibi", "parallel_attn", "parallel_residual", "use_parallel_residual", "multi_query",
        "new_decoder_architecture", "qkv_bias", "use_qkv_bias", "attention_out_bias", "lm_head_bias", "add_bias_linear",
        "attention_bias", "mlp_bias", "enable_moe_block", "is_moe", "moe_intermediate_size", "moe_layers",
        "num_shared_experts", "n_shared_experts", "moe_num_shared_experts", "zero_expert_num",
        "num_nextn_predict_layers", "num_kv_shared_layers", "hidden_size_per_layer_input", "altup_num_inputs",
        "laurel_rank", "attn_layer_period", "attn_layer_indices", "layers_block_type", "hybrid_layer_ids",
        "full_attn_idxs", "state_size", "ssm_state_size", "mamba_d_state", "linear_num_value_heads", "conv_kernel",
        "kv_lora_rank", "q_lora_rank", "o_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "qk_head_dim",
        "num_attention_heads_per_layer", "multi_query_attention", "cross_attention_layers", "token_dropout",
        // Windows and layers without rotation.
        "sliding_window_pattern", "_sliding_window_pattern", "interleaved_sliding_window", "attention_chunk_size",
        "attention_window", "attention_window_size", "window_size", "local_attention", "attention_types",
        "global_attn_every_n_layers", "use_sliding_window", "no_rope_layer_interval", "relative_attention",
        "pos_att_type", "use_relative_position", "relative_attention_num_buckets", "max_relative_position",
        "learned_pos_emb",
        // Rotations that the family does not have.
        "rotary_value", "rotary_dim", "rotary_emb_interleaved", "rope_interleave", "rotary_emb_scale_base",
        // Other media, quantised weights, other shapes.
        "vision_config", "audio_config", "text_config", "quantization_config", "compression_config", "quant_method",
        "load_in_8bit", "load_in_4bit", "pruned_heads", "per_layer_config", "is_encoder_decoder",
        "cross_attention_hidden_size", "add_cross_attention", "prefix_lm"}},
      {[](const json& x, Context) { return is_off(x) || x == 1; },
       "absent, null, 0 or 1, since a mixture of experts is not computed",
       {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_experts_per_tok",
        "num_experts_per_token", "moe_topk", "moe_k"}},
      {[](const json& x, Context) { return x == 1; },
       "absent, null or 1, since all layers have the same weights",
       {"num_hidden_groups", "inner_group_num"}},
      {[](const json& x, Context) { return x == 1; },
       "absent, null or 1, since another factor changes the result and is not computed",
       {// Granite, MuP and others.
        "embedding_multiplier", "residual_multiplier", "logits_scaling", "logit_scale", "scale_emb", "embedding_scale",
        "lm_head_multiplier", "key_multiplier", "attention_in_multiplier", "attention_out_multiplier",
        "routed_scaling_factor", "logits_mup_width_multiplier", "attention_value_scale",
        // The rotation.
        "rope_ratio", "rotary_pct", "rotary_emb_fraction", "rope_percentage", "rotary_percentage",
        "rotary_scaling_factor", "partial_rotary_factor"}},
      {[](const json& x, Context) { return x == true; },
       "absent, null or true, since scores are divided by sqrt(head_dim)",
       {"scale_attn_weights"}},
      {[](const json& list, Context) {
         return are_all(list, [](const json& x) { return x == "full_attention" || x == "attention"; });
       },
       "absent, null or a list of full_attention, since all layers are computed alike",
       {"layer_types", "attention_layers", "block_types"}},
      {[](const json& list, Context) { return are_all(list, [](const json& x) { return !is_off(x); }); },
       "absent, null or a list of ones, since all layers rotate",
       {"no_rope_layers"}},
      {[](const json& x, Context context) {
         return x.is_number_integer() && context.max_position_embeddings > 0 && x >= context.max_position_embeddings;
       },
       "absent, null or at least max_position_embeddings, since windows are not computed",
       {"sliding_window", "sliding_window_size"}},
      {[](const json& x, Context context) { return x == context.causal; },
       "absent, null or what the model is",
       {"is_causal", "causal", "is_decoder"}},
      {[](const json& x, Context context) { return x == !context.causal; },
       "absent, null or what the model is",
       {"use_bidirectional_attention", "bidirectional", "is_bidirectional"}},
      {[](const json& x, Context context) { return is_near(x, static_cast<double>(context.head_dim)); },
       "absent, null or the size of a head",
       {"query_pre_attn_scalar", "v_head_dim", "attention_head_size", "attention_head_dim"}},
      {[](const json& x, Context context) {
         return context.head_dim > 0 && is_near(x, 1 / std::sqrt(static_cast<double>(context.head_dim)));
       },
       "absent, null or 1 / sqrt(head_dim)",
       {"attention_multiplier", "attention_scale", "attn_scale", "softmax_scale"}},
      {[](const json& x, Context context) { return is_near(x, static_cast<double>(context.hidden_size)); },
       "absent, null or hidden_size",
       {"embedding_size", "word_embed_proj_dim", "dim_model_base", "embedding_dim"}},
      {[](const json& x, Context context) { return is_near(x, static_cast<double>(context.heads)); },
       "absent, null or num_attention_heads",
       {"num_key_value_heads", "num_kv_heads"}},
      {[](const json& x, Context context) { return is_near(x, context.rope_base); },
       "absent, null or the base of the rotation",
       {"rope_theta", "rotary_emb_base", "rotary_base", "rope_base", "global_rope_theta", "local_rope_theta",
        "rope_local_base_freq"}},
      {is_same_activation,
       "absent, null or the activation that is computed",
       {"hidden_act", "hidden_activation", "activation_function", "activation", "act_fn"}},
      {[](const json& x, Context) { return names_no_model(x); },
       "absent, null or without a class of a model, whose own Python code is not run",
       {"auto_map"}},
      {[](const json&, Context) { return false; },
       "absent or null, since it changes the result and is not computed",
       {"adapter_fusion", "rope_parameters", "rope_scaling"}},
      {[](const json& x, Context) { return x == "absolute"; },
       "absent, null or \"absolute\", since other encodings are named by position_encoding",
       {"position_embedding_type"}},
  };
  return all;
}

}  // namespace

std::optional<Harmless> harmless_key(std::string_view key) {
  if (std::ranges::find(kDropped, key) != std::end(kDropped)) return Harmless::kDropped;
  if (std::ranges::find(kHarmless, key) != std::end(kHarmless)) return Harmless::kKept;
  return std::nullopt;
}

void check_unread_key(std::string_view key, const json& value, const KeyContext& context) {
  for (const ChangingKeys& group : changing_keys()) {
    if (std::ranges::find(group.keys, key) == group.keys.end()) continue;
    if (value.is_null() || group.changes_nothing(value, context)) return;
    fail(context.where, "{} must be {}, got {}", key, group.rule, shown(value));
  }
  if (harmless_key(key)) return;
  const bool of_other = std::ranges::find(kOfOtherFamilies, key) != std::end(kOfOtherFamilies);
  if (of_other && context.unknown == UnknownKeys::kWarned) return;
  // A head size that differs is a sign of another model, though nothing reads it.
  if (key == "head_dim" && (value.is_null() || value == context.head_dim)) return;
  const std::string_view near = io::nearest_name(key, context.hints);
  const std::string hint = near.empty() ? "" : fmt::format("; did you mean {}?", near);
  if (context.unknown == UnknownKeys::kRefused) {
    fail(context.where, "keys must be known, since one could change the result, got {}: {}{}", shown(json(key)),
         shown(value), hint);
  }
  io::warn(context.where, "keys must be known, and one that is not is ignored, got {}: {}{}", shown(json(key)),
           shown(value), hint);
}

}  // namespace rf
