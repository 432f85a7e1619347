// roformer fill-mask.
#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "command.h"
#include "rf/engine/model.h"
#include "rf/io/error.h"
#include "rf/model/config.h"
#include "rf/model/run_checkpoints.h"
#include "rf/text/tokenizer.h"

namespace rf::cli {

namespace {

constexpr const char* kFillMaskWhere = "fill-mask";

struct FillMaskOptions {
  std::string model_dir, text;
  int64_t top_k = 5;
};

void check_model(const engine::ModelInfo& model, const text::Vocabulary& vocabulary, const std::string& model_dir) {
  if (model.vocab_size != vocabulary.size()) {
    fail(kFillMaskWhere, "vocab_size of {} must be its vocabulary's {}, got {}", model_dir, vocabulary.size(),
         model.vocab_size);
  }
}

// The tokens that are masks, in ascending order.
std::vector<int64_t> mask_places(const text::Encoding& encoding, const text::Vocabulary& vocabulary,
                                 const std::string& text) {
  const int64_t mask = vocabulary.special().mask;
  std::vector<int64_t> places;
  for (size_t i = 0; i < encoding.size(); ++i) {
    if (encoding.ids[i] == mask) places.push_back(static_cast<int64_t>(i));
  }
  if (places.empty()) fail(kFillMaskWhere, "the text must have a {}, got \"{}\"", vocabulary.token(mask), text);
  return places;
}

// The most probable tokens, best first; of equal ones the lower id.
nlohmann::json best_tokens(std::span<const float> logits, int64_t count, const text::Vocabulary& vocabulary) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - largest);
  std::vector<int64_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto logit = [&](int64_t id) { return logits[static_cast<size_t>(id)]; };
  std::partial_sort(ids.begin(), ids.begin() + count, ids.end(),
                    [&](int64_t a, int64_t b) { return logit(a) != logit(b) ? logit(a) > logit(b) : a < b; });
  nlohmann::json best = nlohmann::json::array();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t id = ids[static_cast<size_t>(i)];
    best.push_back({{"token", vocabulary.token(id)}, {"id", id}, {"probability", std::exp(logit(id) - largest) / sum}});
  }
  return best;
}

int run_fill_mask(const FillMaskOptions& options) {
  const std::string model_dir = model_of_run(options.model_dir, say);
  const auto tokenizer = text::Tokenizer::load(model_dir);
  const auto& vocabulary = tokenizer.vocabulary();
  if (load_config(model_dir).is_decoder) {
    fail(kFillMaskWhere, "the model must see both sides of a gap, got the causal one in {}", model_dir);
  }
  const engine::Model model(model_dir, {.head = engine::ModelOptions::Head::kMaskedLm, .warn = say});
  check_model(model.info(), vocabulary, model_dir);
  if (options.top_k < 1 || options.top_k > vocabulary.size()) {
    fail(kFillMaskWhere, "top-k must be from 1 to {}, got {}", vocabulary.size(), options.top_k);
  }
  vocabulary.require({text::SpecialRole::kMask}, kFillMaskWhere);
  const text::Encoding encoding = tokenizer.encode_with_specials(options.text);
  const std::vector<int64_t> places = mask_places(encoding, vocabulary, options.text);

  const int64_t offsets[] = {0, static_cast<int64_t>(encoding.size())};
  const auto columns = static_cast<size_t>(vocabulary.size());
  std::vector<float> logits(places.size() * columns);
  model.vocabulary_logits({.ids = encoding.ids, .offsets = offsets}, places, logits.data());
  for (size_t i = 0; i < places.size(); ++i) {
    emit({{"text", options.text},
          {"token_index", places[i]},
          {"predictions", best_tokens(std::span(logits).subspan(i * columns, columns), options.top_k, vocabulary)}});
  }
  return kOk;
}

std::function<int()> configure_fill_mask(CLI::App& app, const Common&) {
  auto options = std::make_shared<FillMaskOptions>();
  app.add_option("--model", options->model_dir, "Model directory")->required();
  app.add_option("--text", options->text, "Text with one or more [MASK]")->required();
  app.add_option("--top-k", options->top_k, "Predictions for each mask, the best first")->capture_default_str();
  return [options] { return run_fill_mask(*options); };
}

}  // namespace

Command fill_mask_command() {
  return {"fill-mask", "The most probable tokens for each [MASK] of a text",
          "roformer fill-mask --model run --text 'The people of the United [MASK].' --top-k 5", Command::Seed::kNotUsed,
          configure_fill_mask};
}

}  // namespace rf::cli
