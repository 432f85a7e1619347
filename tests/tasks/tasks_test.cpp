// Losses against their formulas in double (spec R-TRN-02), pooling of windows, truncation, and where words and answers
// are found in rows. Gradients are
// tests/train/task_loss_test.cpp's; that models learn is tests/cli/test_finetune.py's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "input_rows.h"
#include "losses.h"
#include "rf/tasks/task.h"
#include "text/expect_error.h"
#include "tolerances.h"

namespace rf::tasks {
namespace {

using text::Tokenizer;
using text::Vocabulary;

std::shared_ptr<const Tokenizer> letters() {
  std::vector<std::string> tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "##c", "##d", "##e"};
  for (char letter = 'a'; letter <= 'z'; ++letter) tokens.emplace_back(1, letter);
  return std::make_shared<const Tokenizer>(Vocabulary(tokens), text::TokenizerOptions{});
}

std::string words_of(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::string words;
  for (const int32_t id : ids) words += tokenizer.vocabulary().token(id);
  return words;
}

data::Record record_of(nlohmann::json fields) {
  return {std::make_shared<const std::string>("a.jsonl"), 3, std::move(fields)};
}

std::unique_ptr<Task> task_of(const TaskSettings& settings) {
  return task_kind(settings.kind).make(settings, letters());
}

TaskSettings settings_of(const std::string& kind, std::vector<std::string> labels = {}) {
  TaskSettings settings;
  settings.kind = kind;
  settings.labels = std::move(labels);
  for (const TaskColumn& column : task_kind(kind).columns) {
    if (column.use != TaskColumn::Use::kOptionalInput) settings.columns[column.name] = column.name;
  }
  return settings;
}

// Logits as a model gives them.
std::vector<float> random_logits(size_t count) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = normal(generator);
  return logits;
}

// An example with inputs of so many rows each, of two tokens.
Example example_with(std::vector<int64_t> rows_of_input) {
  Example example;
  for (const int64_t rows : rows_of_input) example.rows.resize(example.rows.size() + static_cast<size_t>(rows));
  for (TokenRow& row : example.rows) row = {{2, 3}, {0, 0}, {-1, -1}};
  example.rows_of_input = std::move(rows_of_input);
  return example;
}

double mean_loss(const Task& task, const std::vector<Example>& examples, const std::vector<float>& logits) {
  std::vector<const Example*> chosen;
  for (const Example& example : examples) chosen.push_back(&example);
  const Loss loss = loss_of(task, chosen, {.values = logits}, 0);
  return loss.sum / static_cast<double>(loss.terms);
}

TEST(Loss, CrossEntropyWithSmoothing) {
  const std::vector<float> logits_NL = random_logits(5 * 3);
  const std::vector<size_t> targets_N = {2, 1, 0, 1, 2};
  for (const double smoothing : {0.0, 0.1}) {
    double expected = 0, value = 0;
    for (size_t n = 0; n < 5; ++n) {
      const Scores logits = Logits{logits_NL, 3}.line(n);
      double sum = 0;
      for (size_t k = 0; k < 3; ++k) sum += std::exp(double{logits_NL[n * 3 + k]});
      for (size_t k = 0; k < 3; ++k) {
        const double cost = std::log(sum) - logits_NL[n * 3 + k];
        expected += ((k == targets_N[n] ? 1 - smoothing : 0) + smoothing / 3) * cost / 5;
      }
      value += cross_entropy(logits, targets_N[n], smoothing).value / 5;
    }
    EXPECT_NEAR(value, expected, tests::kFloat64Formula);
  }
}

TEST(Loss, OfWordsWithoutAPieceIsNothing) {
  const auto task = task_of(settings_of("tokens", {"N", "O"}));
  Example example = example_with({1});
  example.places = {{-1, -1}};
  example.targets = {1};
  const std::vector<float> logits = random_logits(4);
  const Loss loss = task->loss(example, {logits, 2}, 0);
  EXPECT_EQ(loss.sum, 0);
  EXPECT_EQ(loss.terms, 0);
  EXPECT_EQ(loss.gradient, std::vector<double>(4, 0.0));
}

TEST(Loss, OfTriplesIsBinaryCrossEntropyOfBothPairs) {
  const auto task = task_of(settings_of("triples"));
  std::vector<Example> examples(2, example_with({1, 1}));
  examples[0].targets = {0};
  examples[1].targets = {1};
  const std::vector<float> logits = {0.5, -1.5, 2.0, -0.25};
  const auto cost = [](double logit, bool wanted) { return std::log1p(std::exp(wanted ? -logit : logit)); };
  const double expected = (cost(0.5, true) + cost(-1.5, false) + cost(2.0, false) + cost(-0.25, true)) / 4;
  EXPECT_NEAR(mean_loss(*task, examples, logits), expected, tests::kFloat64Formula);
  const std::vector<const Example*> chosen = {&examples[0], &examples[1]};
  EXPECT_EQ(scores_of(*task, chosen, {.values = logits}), (std::vector<Scores>{{0.5, -1.5}, {2.0, -0.25}}));
}

TEST(Loss, OfNumbersIsTheMeanSquare) {
  const auto task = task_of(settings_of("regression"));
  std::vector<Example> examples(2, example_with({1}));
  examples[0].number = 1.5;
  examples[1].number = -2;
  EXPECT_NEAR(mean_loss(*task, examples, {1.0, 2.0}), (0.25 + 16) / 2, tests::kFloat64Formula);
}

TEST(Pooling, IsOverTheWindowsOfEachInput) {
  const Example example = example_with({2, 1, 3});
  const std::vector<float> values = random_logits(6 * 4);
  const Logits logits{values, 4};
  const std::vector<Scores> means = pooled(example, logits, Pooling::kMean);
  const std::vector<Scores> maxima = pooled(example, logits, Pooling::kMax);
  const auto at = [&](size_t row, size_t k) { return double{values[row * 4 + k]}; };
  for (size_t k = 0; k < 4; ++k) {
    EXPECT_DOUBLE_EQ(means[0][k], (at(0, k) + at(1, k)) / 2);
    EXPECT_DOUBLE_EQ(means[1][k], at(2, k));
    EXPECT_DOUBLE_EQ(means[2][k], (at(3, k) + at(4, k) + at(5, k)) / 3);
    EXPECT_EQ(maxima[0][k], std::max(at(0, k), at(1, k)));
    EXPECT_EQ(maxima[1][k], at(2, k));
    EXPECT_EQ(maxima[2][k], std::max({at(3, k), at(4, k), at(5, k)}));
  }
}

TEST(Pooling, KeepsWhatIsNotANumber) {
  const Example example = example_with({3});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::vector<float>& values : {std::vector<float>{nan, 1, 2}, {1, nan, 2}, {1, 2, nan}}) {
    for (const Pooling pooling : {Pooling::kMean, Pooling::kMax}) {
      EXPECT_TRUE(std::isnan(pooled(example, {.values = values}, pooling)[0][0]));
    }
  }
}

// Letters are words; a row of 9 has room for 7 of one text and for 6 of a pair.
TEST(Rows, WhatStaysOfALongText) {
  const auto tokenizer = letters();
  TaskSettings settings;
  settings.max_length = 9;
  const auto row = [&](const text::TextPair& texts) {
    InputRows rows(tokenizer, settings, text::Overflow::kDropped);
    return words_of(*tokenizer, token_row(rows.rows("here", texts)[0]).ids);
  };
  const std::string long_text = "a b c d e f g h i j k l";
  EXPECT_EQ(row({long_text}), "[CLS]abcdefg[SEP]");
  EXPECT_EQ(row({long_text, "x y"}), "[CLS]abcd[SEP]xy[SEP]");
  settings.keep = Keep::kTail;
  EXPECT_EQ(row({long_text}), "[CLS]fghijkl[SEP]");
  settings.keep = Keep::kHeadTail;
  EXPECT_EQ(row({long_text}), "[CLS]abcdjkl[SEP]");
  EXPECT_EQ(row({long_text, "x y"}), "[CLS]abkl[SEP]xy[SEP]");
  EXPECT_EQ(row({"a b c"}), "[CLS]abc[SEP]");
  EXPECT_EQ(row({long_text, "s t u v w x y"}), "[CLS]abl[SEP]sty[SEP]");
  settings.truncation = text::Truncation::kOnlySecond;
  EXPECT_EQ(row({"x y", long_text}), "[CLS]xy[SEP]abkl[SEP]");
  const std::string message = message_of([&] { row({long_text, "x"}); });
  EXPECT_NE(message.find("here: "), std::string::npos) << message;
}

TEST(Rows, WindowsOverALongText) {
  const auto tokenizer = letters();
  TaskSettings settings;
  settings.max_length = 6;
  settings.windows = 3;
  settings.stride = 1;
  InputRows rows(tokenizer, settings, text::Overflow::kDropped);
  std::string all;
  for (const text::Row& row : rows.rows("here", {"a b c d e f g h i j k l"})) {
    all += words_of(*tokenizer, row.tokens.ids);
  }
  EXPECT_EQ(all, "[CLS]abcd[SEP][CLS]defg[SEP][CLS]ghij[SEP]");
  settings.keep = Keep::kHeadTail;
  settings.kind = "classification";
  EXPECT_NE(message_of([&] { check_settings(settings); }).find("head-tail"), std::string::npos);
}

TEST(Tokens, AreFoundByTheirFirstPieceWhereTheyHaveMostAround) {
  TaskSettings settings = settings_of("tokens", {"N", "O"});
  settings.max_length = 6;
  settings.stride = 2;
  const auto task = task_of(settings);
  // Pieces a ##c ##d | b | "" | x ##e | z: windows of four, which repeat two.
  const nlohmann::json fields = {{"tokens", {"acd", "b", "\xC2\xAD", "xe", "z"}},
                                 {"labels", {"N", "O", "O", "N", "O"}}};
  const Example example = task->example(record_of(fields), Targets::kNeeded);
  ASSERT_EQ(example.rows.size(), 3u);  // a c d b, d b x e, x e z
  const std::vector<std::array<int32_t, 2>> places = {{0, 1}, {1, 2}, {-1, -1}, {1, 3}, {2, 3}};
  EXPECT_EQ(example.places, places);
  EXPECT_EQ(example.targets, (std::vector<int64_t>{0, 1, 1, 0, 1}));
}

TEST(Answers, TargetsAreTokensOfEachWindow) {
  TaskSettings settings = settings_of("answers");
  settings.max_length = 8;  // [CLS] q [SEP] four of the context [SEP]
  settings.stride = 2;
  const auto task = task_of(settings);
  const auto targets = [&](const std::string& context, const std::string& answer, int64_t start) {
    const nlohmann::json fields = {{"question", "q"}, {"context", context}, {"answers", answer}, {"start", start}};
    return task->example(record_of(fields), Targets::kNeeded).targets;
  };
  using Ids = std::vector<int64_t>;
  EXPECT_EQ(targets("a b c d e f", "c d", 4), (Ids{5, 6, 3, 4}));
  EXPECT_EQ(targets("a b c d e f", "e", 8), (Ids{0, 0, 5, 5}));
  EXPECT_EQ(targets("a b c d e f", "b c d e", 2), (Ids{0, 0, 0, 0}));  // in no window as a whole
  EXPECT_EQ(targets("\xC3\xA9 b c", "c", 4), (Ids{5, 5}));             // characters, not bytes
  EXPECT_EQ(targets("a b c", "", 0), (Ids{0, 0}));
  for (const auto& [answer, start] : std::vector<std::pair<std::string, int64_t>>{{"x", 2}, {"b", 3}, {"b", 90}}) {
    const std::string message = message_of([&] { targets("a b c", answer, start); });
    EXPECT_NE(message.find("a.jsonl line 3 must have its answer at character"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace rf::tasks
