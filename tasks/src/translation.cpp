// Lines to translations (rf/tasks/translation.h).
#include "rf/tasks/translation.h"

#include "rf/io/error.h"
#include "rf/model/model_types.h"
#include "rf/text/tokenizer.h"

namespace rf::tasks {

namespace {

// Another model is refused before its tokenizer, which may be of another kind too.
text::Tokenizer load_tokenizer(const std::string& model_dir) {
  check_model_type(model_dir, Opens::kTranslation);
  return text::Tokenizer::load(model_dir);
}

}  // namespace

struct LineTranslator::Impl {
  TranslateOptions options;
  text::Tokenizer tokenizer;
  engine::Translator model;

  explicit Impl(TranslateOptions given)
      : options(std::move(given)),
        tokenizer(load_tokenizer(options.model_dir)),
        model(options.model_dir, {.precision = options.precision, .warn = options.warn}) {
    if (options.max_source < 0) fail("translate", "max-source must be at least 0, got {}", options.max_source);
    if (tokenizer.vocabulary().size() != model.info().vocab_size) {
      fail("translate", "vocab_size of {} must be its tokenizer's {}, got {}", options.model_dir,
           tokenizer.vocabulary().size(), model.info().vocab_size);
    }
    if (options.max_source == 0) options.max_source = model.info().max_position_embeddings;
    model.check_source_length(options.max_source);
    model.check(options.search);
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
    ids.push_back(static_cast<int32_t>(model.info().eos_token_id));
    return ids;
  }
};

LineTranslator::LineTranslator(TranslateOptions options) : impl_(std::make_shared<const Impl>(std::move(options))) {}

std::vector<TranslatedLine> LineTranslator::translate(std::span<const std::string> lines, const std::string& name,
                                                      int64_t first_line,
                                                      const std::function<void(int64_t)>& done) const {
  std::vector<std::vector<int32_t>> sources;
  for (const std::string& line : lines) {
    sources.push_back(impl_->ids_of(line, name, first_line + std::ssize(sources)));
  }
  engine::TranslationOptions search = impl_->options.search;
  search.done = done;
  // A line break would be read as another line.
  const auto in_one_line = [](std::string text) {
    for (char& c : text) c = c == '\n' || c == '\r' ? ' ' : c;
    return text;
  };
  std::vector<TranslatedLine> translated;
  for (const engine::Translation& found : impl_->model.translate(sources, search))
    translated.push_back({in_one_line(impl_->tokenizer.decode(found.ids, text::SkipSpecials::kYes)), found.score});
  return translated;
}

}  // namespace rf::tasks
