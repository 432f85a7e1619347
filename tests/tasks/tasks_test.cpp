// Pooling of windows, truncation, where words and answers are found in rows, and bad records. Losses are
// tests/train/task_loss_test.cpp's; that models learn is tests/cli/test_finetune.py's.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "input_rows.h"
#include "losses.h"
#include "rf/tasks/task.h"
#include "text/support.h"

namespace rf::tasks {
namespace {

using text::error_of, text::expect_has;
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

// An example with inputs of so many rows each, of two tokens.
Example example_with(std::vector<int64_t> rows_of_input) {
  Example example;
  for (const int64_t rows : rows_of_input) example.rows.resize(example.rows.size() + static_cast<size_t>(rows));
  for (TokenRow& row : example.rows) row = {{2, 3}, {0, 0}, {-1, -1}};
  example.rows_of_input = std::move(rows_of_input);
  return example;
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
  expect_has(error_of([&] { row({long_text, "x"}); }), "here: ");
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
  expect_has(error_of([&] { check_settings(settings); }), "head-tail");
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
    expect_has(error_of([&] { targets("a b c", answer, start); }), "a.jsonl line 3 must have its answer at character");
  }
}

TEST(Examples, BadRecordsAreNamed) {
  using nlohmann::json;
  const json choice = {{"text", "a"}, {"choices", {"a", "b"}}, {"label", 0}};
  const json tokens = {{"tokens", {"a", "b"}}, {"labels", {"N", "O"}}};
  const json answers = {{"question", "q"}, {"context", "a b c"}};
  const json triples = {{"A", "a"}, {"B", "b"}, {"C", "c"}, {"label", "B"}};
  const auto answer = [](const json& text, const json& start) {
    return json{{"answers", {{"text", text}, {"answer_start", start}}}};
  };
  struct Case {
    const char* kind;
    json good, change;
    const char* part;
  };
  const std::vector<Case> cases = {
      {"choice", choice, {{"label", 9}}, "an integer from 0 to 1 as label, got 9"},
      {"choice", choice, {{"label", 0.5}}, "an integer from 0 to 1 as label, got 0.5"},
      {"choice", choice, {{"choices", {"a"}}}, "at least two choices"},
      {"choice", choice, {{"choices", "a"}}, "list of texts"},
      {"choice", choice, {{"choices", {1, 2}}}, "texts in choices"},
      {"choice", choice, {{"choices", nullptr}}, "\"choices0\""},
      {"tokens", tokens, {{"labels", {"O"}}}, "a label in labels for each of the 2 tokens, got 1"},
      {"tokens", tokens, {{"tokens", "a"}}, "list of texts"},
      {"tokens", tokens, {{"tokens", {1, 2}}}, "texts in tokens"},
      {"answers", answers, answer({"a"}, {999}),
       "character 999 of the context, got \"a\" where the context has its end"},
      {"answers", answers, answer({"a"}, json::array()), "of one size"},
      {"answers", answers, answer({1}, {0}), "texts and integers in answers"},
      {"answers", answers, answer({"a"}, {3.7}), "texts and integers in answers, got \"a\" and 3.7"},
      {"answers", answers, answer({"z"}, {0}), "character 0 of the context, got \"z\""},
      {"answers", answers, {{"question", std::string(400, '?')}}, "a.jsonl line 3: "},
      {"triples", triples, {{"label", "A"}}, "a label of the training file, \"B\", \"C\", got \"A\""},
      {"regression", {{"text", "a"}}, {{"label", 1e300}}, "got 1e+300"},
  };
  for (const Case& one : cases) {
    TaskSettings settings = settings_of(one.kind);
    if (settings.kind == "tokens") settings.labels = {"N", "O"};
    json fields = one.good;
    fields.update(one.change);
    const std::string message = error_of([&] { task_of(settings)->example(record_of(fields), Targets::kNeeded); });
    text::expect_parts(message, {"a.jsonl line 3", one.part});
  }
}

}  // namespace
}  // namespace rf::tasks
