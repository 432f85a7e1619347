// Terms of a position encoding for the engine (rf/train/bake.h).
#include "rf/train/bake.h"

#include <nlohmann/json.hpp>

#include "rf/model/position_terms.h"
#include "rf/nn/position_terms.h"

namespace rf::train {

namespace {

nlohmann::json length_or_all(int64_t tokens) {
  if (tokens == kAllTokens) return "all";
  return tokens;
}

}  // namespace

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
