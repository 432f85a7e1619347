// Losses against their formulas in double (spec R-TRN-02), pooling of windows, truncation, and where words and answers
// are found in rows. That models learn is tests/cli/test_finetune.py's.
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <cmath>

#include "support.h"
#include "tasks/classes.h"
#include "tolerances.h"

namespace rf::train {
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

TEST(Loss, CrossEntropyWithSmoothing) {
  at::manual_seed(1);
  const at::Tensor logits_NL = at::randn({5, 3}) * 3, targets_N = at::tensor({2, -100, 0, 1, 2}, at::kLong);
  for (const double smoothing : {0.0, 0.1}) {
    double expected = 0;
    for (int64_t n = 0; n < 5; ++n) {
      const int64_t target = targets_N[n].item<int64_t>();
      if (target < 0) continue;
      double sum = 0;
      for (int64_t k = 0; k < 3; ++k) sum += std::exp(double{logits_NL[n][k].item<float>()});
      for (int64_t k = 0; k < 3; ++k) {
        const double cost = std::log(sum) - logits_NL[n][k].item<float>();
        expected += ((k == target ? 1 - smoothing : 0) + smoothing / 3) * cost / 4;
      }
    }
    EXPECT_NEAR(class_loss(logits_NL, targets_N, smoothing).item<float>(), expected, tests::kFloat32Primitive * 10);
  }
  EXPECT_EQ(class_loss(logits_NL, at::tensor({-100, -100, -100, -100, -100}, at::kLong), 0).item<float>(), 0);
}

TEST(Loss, OfTriplesIsBinaryCrossEntropyOfBothPairs) {
  const auto task = task_of(settings_of("triples"));
  std::vector<Example> examples(2);
  examples[0].targets = {0};
  examples[1].targets = {1};
  for (Example& example : examples) {
    example.rows = {{{2, 3}, {0, 0}, {-1, -1}}, {{2, 3}, {0, 0}, {-1, -1}}};
    example.rows_of_input = {1, 1};
  }
  const std::vector<const Example*> chosen = {&examples[0], &examples[1]};
  const Batch batch = make_batch(chosen, 0);
  const std::vector<double> logits = {0.5, -1.5, 2.0, -0.25};
  nn::Output output;
  output.logits = at::tensor(logits, at::kFloat).view({4, 1});
  const auto cost = [](double logit, bool wanted) { return std::log1p(std::exp(wanted ? -logit : logit)); };
  const double expected = (cost(0.5, true) + cost(-1.5, false) + cost(2.0, false) + cost(-0.25, true)) / 4;
  EXPECT_NEAR(task->loss(output, batch, 0).item<float>(), expected, tests::kFloat32Primitive * 10);
  EXPECT_EQ(task->scores(output, batch), (std::vector<Scores>{{0.5, -1.5}, {2.0, -0.25}}));
}

TEST(Loss, OfNumbersIsTheMeanSquare) {
  const auto task = task_of(settings_of("regression"));
  std::vector<Example> examples(2);
  examples[0].number = 1.5;
  examples[1].number = -2;
  for (Example& example : examples) {
    example.rows = {{{2, 3}, {0, 0}, {-1, -1}}};
    example.rows_of_input = {1};
  }
  const std::vector<const Example*> chosen = {&examples[0], &examples[1]};
  nn::Output output;
  output.logits = at::tensor(std::vector<double>{1.0, 2.0}, at::kFloat).view({2, 1});
  EXPECT_NEAR(task->loss(output, make_batch(chosen, 0), 0).item<float>(), (0.25 + 16) / 2, tests::kFloat32Primitive);
}

TEST(Pooling, IsOverTheWindowsOfEachInput) {
  Batch batch;
  batch.rows_of_input = at::tensor({2, 1, 3}, at::kLong);
  const at::Tensor logits_RL = at::randn({6, 4}).requires_grad_(true);
  const auto rows = [&](int64_t begin, int64_t count) { return logits_RL.narrow(0, begin, count); };
  EXPECT_TRUE(pooled(logits_RL, batch, Pooling::kMean)
                  .equal(at::stack({rows(0, 2).mean(0), rows(2, 1).mean(0), rows(3, 3).mean(0)})));
  EXPECT_TRUE(pooled(logits_RL, batch, Pooling::kMax)
                  .equal(at::stack({rows(0, 2).amax(0), rows(2, 1).amax(0), rows(3, 3).amax(0)})));
  pooled(logits_RL, batch, Pooling::kMean).sum().backward();
  EXPECT_FLOAT_EQ(logits_RL.grad()[4][0].item<float>(), 1.0f / 3);
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
}  // namespace rf::train
