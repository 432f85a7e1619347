// Masks and their most probable tokens (rf/tasks/fill_mask.h).
#include "rf/tasks/fill_mask.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "rf/engine/model.h"
#include "rf/io/error.h"
#include "rf/io/finite.h"
#include "rf/io/printable.h"
#include "rf/io/warning.h"
#include "rf/model/config.h"

namespace rf::tasks {

namespace {

constexpr const char* kMaskWhere = "fill-mask";

// The tokens that are masks, in ascending order.
std::vector<int64_t> mask_places(const text::Encoding& encoding, const text::Vocabulary& vocabulary,
                                 const std::string& text) {
  const int64_t mask = vocabulary.special().mask;
  std::vector<int64_t> places;
  for (size_t i = 0; i < encoding.size(); ++i) {
    if (encoding.ids[i] == mask) places.push_back(static_cast<int64_t>(i));
  }
  if (places.empty()) {
    fail<ArgumentError>(kMaskWhere, "the text must have a {}, got {}", vocabulary.token(mask), io::printable(text));
  }
  return places;
}

// logits: of all rows of the embedding, which may be more than the tokens. Rows without a token take their share of the
// probability, but are not candidates.
std::vector<MaskCandidate> best_tokens(std::span<const float> logits, int64_t count,
                                       const text::Vocabulary& vocabulary) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - largest);
  std::vector<int64_t> ids(static_cast<size_t>(vocabulary.size()));
  std::iota(ids.begin(), ids.end(), 0);
  const auto logit = [&](int64_t id) { return logits[static_cast<size_t>(id)]; };
  std::partial_sort(ids.begin(), ids.begin() + count, ids.end(),
                    [&](int64_t a, int64_t b) { return logit(a) != logit(b) ? logit(a) > logit(b) : a < b; });
  std::vector<MaskCandidate> best;
  for (const int64_t id : std::span(ids).first(static_cast<size_t>(count))) {
    best.push_back({id, vocabulary.token(id), std::exp(logit(id) - largest) / sum});
  }
  return best;
}

}  // namespace

struct MaskFiller::Impl {
  text::Tokenizer tokenizer;
  engine::Model model;
};

MaskFiller::MaskFiller(const std::string& model_dir, const MaskFillerOptions& options) {
  const io::WarningScope scope(options.note);
  if (load_config(model_dir).is_decoder) {
    fail(kMaskWhere, "the model must see both sides of a gap, got the causal one in {}", model_dir);
  }
  auto tokenizer = text::Tokenizer::load(model_dir, options.load);
  const text::Vocabulary& vocabulary = tokenizer.vocabulary();
  engine::Model model(model_dir, {.precision = options.precision,
                                  .token_budget = options.token_budget,
                                  .head = engine::ModelOptions::Head::kMaskedLm,
                                  .warn = options.note});
  if (model.info().vocab_size < vocabulary.size()) {
    fail(kMaskWhere, "vocab_size of {} must be at least its vocabulary's {}, got {}", model_dir, vocabulary.size(),
         model.info().vocab_size);
  }
  vocabulary.require({text::SpecialRole::kMask}, kMaskWhere);
  impl_.reset(new Impl{std::move(tokenizer), std::move(model)});
}

std::vector<FilledMask> MaskFiller::fill(const std::string& text, int64_t top_k) const {
  const text::Vocabulary& vocabulary = impl_->tokenizer.vocabulary();
  if (top_k < 1 || top_k > vocabulary.size()) {
    fail<ArgumentError>(kMaskWhere, "top-k must be from 1 to {}, got {}", vocabulary.size(), top_k);
  }
  const text::Encoding encoding = impl_->tokenizer.encode_with_specials(text);
  const std::vector<int64_t> places = mask_places(encoding, vocabulary, text);
  const int64_t offsets[] = {0, static_cast<int64_t>(encoding.size())};
  const auto columns = static_cast<size_t>(impl_->model.info().vocab_size);
  std::vector<float> logits(places.size() * columns);
  impl_->model.vocabulary_logits({.ids = encoding.ids, .offsets = offsets}, places, logits.data());
  io::check_finite(
      logits, impl_->model.info().vocab_size, [](int64_t) { return kMaskWhere; },
      [&](int64_t) { return "the logits of " + io::printable(text); });
  std::vector<FilledMask> filled;
  for (size_t i = 0; i < places.size(); ++i) {
    filled.push_back({places[i], best_tokens(std::span(logits).subspan(i * columns, columns), top_k, vocabulary)});
  }
  return filled;
}

}  // namespace rf::tasks
