// X-11 (C-30): tokens of Chinese text, by characters (BERT's tokenizer) and by words (RoFormer's).
#include <fmt/format.h>

#include <algorithm>

#include "data_sets.h"
#include "experiment.h"
#include "rf/data/reader.h"
#include "rf/text/tokenizer.h"

namespace rf::reproduce {

namespace {

constexpr double kRatioBound = 0.75;
constexpr const char* kCharacters = "vocabs/bert_base_chinese_vocab.txt";
constexpr const char* kWords = "vocabs/roformer_chinese_base_vocab.txt";

struct ChineseTokensSettings {
  Files texts = {"zh_laws/laws_train.jsonl", "zh_classics/hongloumeng.txt", "zh_classics/sanguoyanyi.txt",
                 "zh_classics/shuihuzhuan.txt", "zh_classics/xiyouji.txt"};
  Files files = {kCharacters, kWords, kDictionary, texts[0], texts[1], texts[2], texts[3], texts[4]};
  RF_MEMBERS(ChineseTokensSettings, files, texts)
};

text::Tokenizer tokenizer(const std::string& vocabulary, text::Pipeline pipeline,
                          std::shared_ptr<const text::Dictionary> dictionary) {
  return text::Tokenizer(text::Vocabulary::load(vocabulary),
                         {.pipeline = pipeline, .dictionary = std::move(dictionary)});
}

// Code points: bytes that do not continue one.
int64_t characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

Result run_chinese_tokens(const ChineseTokensSettings& settings, const Context& context) {
  const auto path = [&](const std::string& file) { return context.data_dir + "/" + file; };
  const text::Tokenizer by_character = tokenizer(path(kCharacters), text::Pipeline::kBert, nullptr);
  const text::Tokenizer by_word =
      tokenizer(path(kWords), text::Pipeline::kRoformer, text::Dictionary::load(path(kDictionary)));
  Result result{.columns = {"text", "characters", "character tokens per 1,000 characters",
                            "word tokens per 1,000 characters", "word tokens by character tokens"},
                .rows = {}};
  double worst = 0;
  std::string figures;
  for (const std::string& file : settings.texts) {
    int64_t count = 0, character_tokens = 0, word_tokens = 0;
    data::DocumentReader({.inputs = {path(file)}}).read([&](const data::DocumentPart& piece) {
      text::Encoding encoding;
      count += characters(piece.text);
      by_character.encode(piece.text, encoding);
      character_tokens += static_cast<int64_t>(encoding.ids.size());
      encoding = {};
      by_word.encode(piece.text, encoding);
      word_tokens += static_cast<int64_t>(encoding.ids.size());
      context.progress.update(fmt::format("{}: {} characters", file, count));
    });
    const double thousands = static_cast<double>(count) / 1000;
    const double ratio = static_cast<double>(word_tokens) / static_cast<double>(character_tokens);
    result.rows.push_back({file, count, static_cast<double>(character_tokens) / thousands,
                           static_cast<double>(word_tokens) / thousands, ratio});
    worst = std::max(worst, ratio);
    figures += fmt::format("{}{} {:.2f}", figures.empty() ? "" : ", ", file, ratio);
  }
  result.findings = {{"C-30", worst <= kRatioBound, "word tokens by character tokens: " + figures}};
  return result;
}

}  // namespace

Experiment chinese_tokens() {
  return {.name = "chinese-tokens",
          .spec = "X-11",
          .title = "Do words make Chinese sequences shorter?",
          .claims = {"C-30"},
          .expected = "On every text RoFormer's word tokens are at most 0.75 times as many as BERT's character tokens.",
          .budget = "seconds",
          .method = run_chinese_tokens,
          .kind = Kind::kMeasurement};
}

}  // namespace rf::reproduce
