// Means of embeddings, summed in float64, and terms of position encodings (rf/train/model_files.h).
#include "rf/train/model_files.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/embedding_bag.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "rf/io/error.h"
#include "rf/model/position_terms.h"
#include "rf/nn/model.h"
#include "rf/nn/position_terms.h"

namespace rf::train {
namespace {

// The sources of all tokens in one list, and the offset of each token.
struct Bags {
  at::Tensor ids, offsets;
};

Bags bags_of(const std::vector<std::vector<int32_t>>& sources, int64_t vocab_size) {
  std::vector<int64_t> ids, offsets;
  for (size_t token = 0; token < sources.size(); ++token) {
    if (sources[token].empty()) fail("vocabulary", "every token must have a source, got none for token {}", token);
    offsets.push_back(static_cast<int64_t>(ids.size()));
    for (const int32_t id : sources[token]) {
      if (id < 0 || id >= vocab_size) {
        fail("vocabulary", "sources must be in 0..{}, the tokens of the model, got {} for token {}", vocab_size - 1, id,
             token);
      }
      ids.push_back(id);
    }
  }
  return {at::tensor(ids, at::kLong), at::tensor(offsets, at::kLong)};
}

// rows [V] or [V,C] by the old tokens.
at::Tensor means(const at::Tensor& rows, const Bags& bags) {
  constexpr int64_t kMean = 1;
  const at::Tensor rows_VC = rows.dim() == 1 ? rows.unsqueeze(1) : rows;
  const at::Tensor mean_VC = std::get<0>(at::embedding_bag(rows_VC.to(at::kDouble), bags.ids, bags.offsets,
                                                           /*scale_grad_by_freq=*/false, kMean));
  return rows.dim() == 1 ? mean_VC.squeeze(1) : mean_VC;
}

bool is_by_token(const std::string& name) {
  return name.ends_with("embeddings.word_embeddings.weight") || name.ends_with("predictions.bias") ||
         name.ends_with("predictions.decoder.weight") || name.ends_with("predictions.decoder.bias") ||
         name.ends_with(".word_freqs");  // of the position encoding "complex"
}

int64_t index_of(const std::vector<std::vector<int32_t>>& sources, int64_t old_token) {
  const auto found = std::find(sources.begin(), sources.end(), std::vector{static_cast<int32_t>(old_token)});
  if (found == sources.end()) fail("vocabulary", "the padding token {} must be kept, got it left out", old_token);
  return found - sources.begin();
}

nlohmann::json length_or_all(int64_t tokens) {
  if (tokens == kAllTokens) return "all";
  return tokens;
}

}  // namespace

void change_vocabulary(const std::string& model_dir, const std::vector<std::vector<int32_t>>& sources,
                       const std::string& output_dir) {
  const at::NoGradGuard no_grad;
  const auto before = nn::load_model(model_dir, std::nullopt, at::kFloat);
  const Bags bags = bags_of(sources, before->config().vocab_size);
  ModelConfig config = before->config();
  config.vocab_size = static_cast<int64_t>(sources.size());
  config.pad_token_id = index_of(sources, config.pad_token_id);
  nn::Model after(config, before->head());
  const auto given = before->named_parameters();
  for (auto& item : after.named_parameters()) {
    const at::Tensor& old = given[item.key()];
    item.value().copy_(is_by_token(item.key()) ? means(old, bags) : old);
  }
  const auto buffers = before->named_buffers();
  for (auto& item : after.named_buffers()) item.value().copy_(buffers[item.key()]);
  if (before->position_table().defined()) after.set_position_table(before->position_table());
  nn::save_model(after, output_dir);
}

nlohmann::json bake(const std::string& model_dir, std::optional<int64_t> length) {
  nlohmann::json report = {{"model", model_dir}, {"file", nullptr}};
  const std::optional<nn::SavedTerms> saved = nn::save_position_terms(model_dir, length);
  if (!saved) return report;  // the engine computes what the encoding needs
  report["file"] = kPositionTermsFile;
  report["tokens"] = length_or_all(saved->tokens);
  report["longest"] = length_or_all(saved->longest);
  report["bytes"] = saved->bytes;
  return report;
}

}  // namespace rf::train
