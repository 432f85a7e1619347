// The tensors of an encoder-decoder with Marian's names (translation_config.h). Letters: V vocabulary, C d_model, F
// inner width of the feed-forward layers.
#include <fmt/format.h>

#include <utility>

#include "rf/model/translation_config.h"

namespace rf {
namespace {

struct BodyModule {
  const char* in_body;
  const char* in_file;
  enum class Kind { kProjection, kUp, kDown, kNorm } kind;
};

constexpr BodyModule kSelfAttention[] = {
    {"attention.self.query", "self_attn.q_proj", BodyModule::Kind::kProjection},
    {"attention.self.key", "self_attn.k_proj", BodyModule::Kind::kProjection},
    {"attention.self.value", "self_attn.v_proj", BodyModule::Kind::kProjection},
    {"attention.output.dense", "self_attn.out_proj", BodyModule::Kind::kProjection},
    {"attention.output.LayerNorm", "self_attn_layer_norm", BodyModule::Kind::kNorm},
};
constexpr BodyModule kCrossAttention[] = {
    {"crossattention.self.query", "encoder_attn.q_proj", BodyModule::Kind::kProjection},
    {"crossattention.self.key", "encoder_attn.k_proj", BodyModule::Kind::kProjection},
    {"crossattention.self.value", "encoder_attn.v_proj", BodyModule::Kind::kProjection},
    {"crossattention.output.dense", "encoder_attn.out_proj", BodyModule::Kind::kProjection},
    {"crossattention.output.LayerNorm", "encoder_attn_layer_norm", BodyModule::Kind::kNorm},
};
constexpr BodyModule kFeedForward[] = {
    {"intermediate.dense", "fc1", BodyModule::Kind::kUp},
    {"output.dense", "fc2", BodyModule::Kind::kDown},
    {"output.LayerNorm", "final_layer_norm", BodyModule::Kind::kNorm},
};

// Calls take(module, name in the body, name in the file) for every module of a side.
template <typename Take>
void for_each_module(const TranslationConfig& config, TranslationSide side, const Take& take) {
  const bool is_decoder = side == TranslationSide::kDecoder;
  const int64_t layers = is_decoder ? config.decoder_layers : config.encoder_layers;
  for (int64_t l = 0; l < layers; ++l) {
    const std::string body = fmt::format("encoder.layer.{}.", l);
    const std::string file = fmt::format("model.{}.layers.{}.", is_decoder ? "decoder" : "encoder", l);
    const auto all = [&](const auto& modules) {
      for (const BodyModule& module : modules) take(module, body + module.in_body, file + module.in_file);
    };
    all(kSelfAttention);
    if (is_decoder) all(kCrossAttention);
    all(kFeedForward);
  }
}

std::vector<int64_t> shape_of_module(const BodyModule& module, int64_t width, int64_t inner) {
  switch (module.kind) {
    case BodyModule::Kind::kProjection: return {width, width};
    case BodyModule::Kind::kUp: return {inner, width};
    case BodyModule::Kind::kDown: return {width, inner};
    case BodyModule::Kind::kNorm: break;
  }
  return {width};
}

}  // namespace

std::vector<WeightSpec> weight_specs(const TranslationConfig& config) {
  std::vector<WeightSpec> specs = {
      {kSharedEmbedding, {config.vocab_size, config.d_model}, WeightRole::kEmbedding},
      {kOutputBias, {1, config.vocab_size}, WeightRole::kBuffer},
  };
  for (const auto& [side, inner] : {std::pair{TranslationSide::kEncoder, config.encoder_ffn_dim},
                                    {TranslationSide::kDecoder, config.decoder_ffn_dim}}) {
    for_each_module(config, side, [&](const BodyModule& module, const std::string&, const std::string& file) {
      const bool is_norm = module.kind == BodyModule::Kind::kNorm;
      const std::vector<int64_t> shape = shape_of_module(module, config.d_model, inner);
      specs.push_back({file + ".weight", shape, is_norm ? WeightRole::kNormGain : WeightRole::kMatrix});
      specs.push_back({file + ".bias", {shape[0]}, is_norm ? WeightRole::kNormBias : WeightRole::kBias});
    });
  }
  return specs;
}

std::vector<BodyName> body_names(const TranslationConfig& config, TranslationSide side) {
  std::vector<BodyName> names = {{"embeddings.word_embeddings.weight", kSharedEmbedding}};
  for_each_module(config, side, [&](const BodyModule&, const std::string& body, const std::string& file) {
    for (const char* part : {".weight", ".bias"}) names.push_back({body + part, file + part});
  });
  return names;
}

}  // namespace rf
