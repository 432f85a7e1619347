// Lines to translations (rf/train/translate.h).
#include "rf/train/translate.h"

#include <algorithm>
#include <numeric>

#include "rf/io/error.h"
#include "rf/model/model_types.h"
#include "rf/nn/translation_search.h"
#include "rf/text/tokenizer.h"

namespace rf::train {

namespace {

// Another model is refused before its tokenizer, which may be of another kind too.
text::Tokenizer load_tokenizer(const std::string& model_dir) {
  check_model_type(model_dir, Opens::kTranslation);
  return text::Tokenizer::load(model_dir);
}

}  // namespace

struct Translator::Impl {
  TranslateOptions options;
  text::Tokenizer tokenizer;
  std::shared_ptr<nn::TranslationModel> model;
  nn::SearchOptions search;

  explicit Impl(TranslateOptions given)
      : options(std::move(given)),
        tokenizer(load_tokenizer(options.model_dir)),
        model(nn::load_translation_model(options.model_dir, at::kFloat)) {
    if (options.batch_tokens < 1) fail("translate", "batch-tokens must be at least 1, got {}", options.batch_tokens);
    if (options.max_source < 0) fail("translate", "max-source must be at least 0, got {}", options.max_source);
    if (tokenizer.vocabulary().size() != model->config().vocab_size) {
      fail("translate", "vocab_size of {} must be its tokenizer's {}, got {}", options.model_dir,
           tokenizer.vocabulary().size(), model->config().vocab_size);
    }
    if (options.max_source == 0) options.max_source = model->config().max_position_embeddings;
    using Cache = nn::SearchOptions::Cache;
    search = {.beams = options.beams,
              .length_penalty = options.length_penalty,
              .max_ratio = options.max_ratio,
              .max_extra = options.max_extra,
              .cache = options.cache == TranslateOptions::Cache::kUsed ? Cache::kUsed : Cache::kNone};
    nn::check_search(search, model->config());
  }

  // The tokens and their end; none for white space.
  std::vector<int32_t> ids_of(const std::string& line, const std::string& name, int64_t number) const {
    if (line.find_first_not_of(" \t\r\f\v") == std::string::npos) return {};
    text::Encoding encoding;
    tokenizer.encode(line, encoding);
    std::vector<int32_t> ids = std::move(encoding.ids);
    if (encoding.replaced_bytes > 0 && options.note) {
      options.note(fmt::format("{}, line {}, has bytes that are not UTF-8, which are read as U+FFFD", name, number));
    }
    if (std::ssize(ids) >= options.max_source) {
      if (options.note) {
        options.note(fmt::format("{}, line {}, has {} tokens; the first {} are translated", name, number, ids.size(),
                                 options.max_source - 1));
      }
      ids.resize(static_cast<size_t>(options.max_source - 1));
    }
    ids.push_back(static_cast<int32_t>(model->config().eos_token_id));
    return ids;
  }

  // Lines by length, the longest first, in batches of at most batch_tokens, or of one line.
  std::vector<std::vector<size_t>> batches(const std::vector<std::vector<int32_t>>& sources) const {
    std::vector<size_t> order(sources.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return sources[a].size() > sources[b].size(); });
    std::vector<std::vector<size_t>> out;
    for (const size_t i : order) {
      if (sources[i].empty()) break;
      const size_t longest = out.empty() ? 0 : sources[out.back()[0]].size();
      const size_t tokens = out.empty() ? 0 : (out.back().size() + 1) * longest * static_cast<size_t>(options.beams);
      if (out.empty() || tokens > static_cast<size_t>(options.batch_tokens)) out.emplace_back();
      out.back().push_back(i);
    }
    return out;
  }
};

Translator::Translator(TranslateOptions options) : impl_(std::make_shared<Impl>(std::move(options))) {}

std::vector<TranslatedLine> Translator::translate(std::span<const std::string> lines, const std::string& name,
                                                  int64_t first_line, const std::function<void(int64_t)>& done) {
  std::vector<std::vector<int32_t>> sources;
  for (const std::string& line : lines) {
    sources.push_back(impl_->ids_of(line, name, first_line + std::ssize(sources)));
  }
  std::vector<TranslatedLine> translated(lines.size());
  // A line break would be read as another line.
  const auto in_one_line = [](std::string text) {
    for (char& c : text) c = c == '\n' || c == '\r' ? ' ' : c;
    return text;
  };
  int64_t finished = 0;
  for (const std::vector<size_t>& batch : impl_->batches(sources)) {
    std::vector<std::vector<int32_t>> of_batch;
    for (const size_t i : batch) of_batch.push_back(sources[i]);
    const std::vector<nn::Translation> found = nn::translate(*impl_->model, of_batch, impl_->search);
    for (size_t k = 0; k < batch.size(); ++k) {
      translated[batch[k]] = {in_one_line(impl_->tokenizer.decode(found[k].ids, text::SkipSpecials::kYes)),
                              found[k].score};
    }
    finished += std::ssize(batch);
    if (done) done(finished);
  }
  return translated;
}

}  // namespace rf::train
