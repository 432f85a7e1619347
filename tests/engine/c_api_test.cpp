// The C interface: arguments that break a rule are refused, and nothing is written.
#include "rf/engine.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/model_directory.h"

namespace rf::tests {
namespace {

class EngineCApi : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(rf_engine_open(model.path().c_str(), nullptr, &engine), RF_OK) << rf_engine_last_error();
    tokens.struct_size = sizeof tokens;
    tokens.sequences = 2;
    tokens.offsets = offsets;
    tokens.ids = ids;
  }
  void TearDown() override { rf_engine_close(engine); }

  // The call is refused, its message has the word, and the output is as it was.
  void expect_refused(rf_status status, const char* word) {
    const std::string message = rf_engine_last_error();
    EXPECT_EQ(status, RF_INVALID_ARGUMENT) << message;
    EXPECT_TRUE(message.starts_with("[") && message.find(word) != std::string::npos) << word << " in " << message;
    for (const float value : out) EXPECT_EQ(value, kUntouched);
  }
  rf_status hidden() { return rf_engine_hidden(engine, &tokens, out.data()); }

  static constexpr float kUntouched = 17;
  ModelDirectory model{small_config("bert", "BertForMaskedLM")};
  rf_engine* engine = nullptr;
  rf_engine_tokens tokens = {};
  int32_t ids[3] = {3, 4, 5};
  int64_t offsets[3] = {0, 1, 3};
  std::vector<float> out = std::vector<float>(3 * 31, kUntouched);
};

TEST_F(EngineCApi, Null) {
  rf_engine* opened = engine;
  expect_refused(rf_engine_open(nullptr, nullptr, &opened), "model_dir");
  EXPECT_EQ(opened, nullptr);
  expect_refused(rf_engine_open("x", nullptr, nullptr), "engine");
  rf_engine_info info = {};
  info.struct_size = sizeof info;
  expect_refused(rf_engine_describe(nullptr, &info), "engine");
  expect_refused(rf_engine_describe(engine, nullptr), "info");
  const int64_t rows[] = {0};
  const std::function<rf_status(rf_engine*, rf_engine_tokens*, float*)> calls[] = {
      [](auto... x) { return rf_engine_hidden(x...); }, [](auto... x) { return rf_engine_logits(x...); },
      [](auto* of, auto* given, float* to) { return rf_engine_pooled(of, given, RF_ENGINE_MEAN, to); },
      [&](auto* of, auto* given, float* to) { return rf_engine_vocabulary_logits(of, given, rows, 1, to); }};
  for (const auto& call : calls) {
    expect_refused(call(nullptr, &tokens, out.data()), "engine");
    expect_refused(call(engine, nullptr, out.data()), "tokens");
    expect_refused(call(engine, &tokens, nullptr), "out");
  }
  expect_refused(rf_engine_vocabulary_logits(engine, &tokens, nullptr, 1, out.data()), "rows");
  rf_engine_close(nullptr);
}

TEST_F(EngineCApi, Vectors) {
  const char* const text = "a";
  rf_engine_vectors found = {};
  found.struct_size = sizeof found;
  found.count = 7;
  expect_refused(rf_engine_embed_vectors(nullptr, 1, &text, nullptr, nullptr), "out");
  expect_refused(rf_engine_embed_vectors(nullptr, 1, &text, nullptr, &found), "embedder");
  EXPECT_EQ(found.count, 0);
  EXPECT_EQ(found.owner, nullptr);
  found.struct_size = 8;
  expect_refused(rf_engine_embed_vectors(nullptr, 1, &text, nullptr, &found), "out.struct_size");
  found.struct_size = sizeof found;
  for (int i = 0; i < 2; ++i) rf_engine_vectors_free(&found);
  rf_engine_vectors_free(nullptr);
  EXPECT_EQ(found.struct_size, sizeof found);
  rf_engine_embedder_options options = {};
  options.struct_size = sizeof options;
  rf_engine_embedder* embedder = nullptr;
  const int unknown = 4;
  std::memcpy(&options.vectors, &unknown, sizeof unknown);
  expect_refused(rf_engine_embedder_open(model.path().c_str(), &options, &embedder), "vectors must be a known one");
  options.vectors = RF_ENGINE_DENSE;
  std::memcpy(&options.role, &unknown, sizeof unknown);
  expect_refused(rf_engine_embedder_open(model.path().c_str(), &options, &embedder), "role must be a known one");
  options.role = RF_ENGINE_QUERY;
  options.max_active = -1;
  expect_refused(rf_engine_embedder_open(model.path().c_str(), &options, &embedder), "max_active");
  EXPECT_EQ(embedder, nullptr);
}

TEST_F(EngineCApi, StructSize) {
  for (const size_t size : {size_t{0}, size_t{4}, sizeof tokens + 8, SIZE_MAX}) {
    tokens.struct_size = size;
    expect_refused(hidden(), "tokens.struct_size");
    rf_engine_info info = {};
    info.struct_size = size == sizeof tokens + 8 ? sizeof info + 8 : size;
    expect_refused(rf_engine_describe(engine, &info), "info.struct_size");
    rf_engine_options options = {};
    options.struct_size = size == sizeof tokens + 8 ? sizeof options + 8 : size;
    rf_engine* opened = nullptr;
    expect_refused(rf_engine_open(model.path().c_str(), &options, &opened), "options.struct_size");
  }
}

TEST_F(EngineCApi, AnOlderCallersStructs) {
  rf_engine_info info = {};
  info.struct_size = offsetof(rf_engine_info, hidden_size);
  ASSERT_EQ(rf_engine_describe(engine, &info), RF_OK);
  EXPECT_EQ(info.vocab_size, 31);
  EXPECT_EQ(info.hidden_size, 0);
  tokens.struct_size = offsetof(rf_engine_tokens, types);
  EXPECT_EQ(hidden(), RF_OK) << rf_engine_last_error();
}

TEST_F(EngineCApi, Options) {
  const auto refused = [&](auto&& set, const char* word) {
    rf_engine_options options = {};
    options.struct_size = sizeof options;
    set(options);
    rf_engine* opened = engine;
    expect_refused(rf_engine_open(model.path().c_str(), &options, &opened), word);
    EXPECT_EQ(opened, nullptr);
  };
  for (const int bad : {-1, 3, 1 << 30}) {
    // Through memory, because an enum does not hold every value.
    refused([&](rf_engine_options& x) { std::memcpy(&x.precision, &bad, sizeof bad); }, "precision");
    refused([&](rf_engine_options& x) { std::memcpy(&x.head, &bad, sizeof bad); }, "head");
  }
  for (const int64_t bad : {int64_t{-1}, INT64_MIN})
    refused([&](rf_engine_options& x) { x.token_budget = bad; }, "token_budget");
}

TEST_F(EngineCApi, NoSequences) {
  tokens.sequences = 0;
  EXPECT_EQ(hidden(), RF_OK) << rf_engine_last_error();
  EXPECT_EQ(rf_engine_pooled(engine, &tokens, RF_ENGINE_MEAN, out.data()), RF_OK);
  for (const float value : out) EXPECT_EQ(value, kUntouched);
}

TEST_F(EngineCApi, ValuesOfTokens) {
  int32_t types[3] = {0, 1, 0};
  int64_t positions[3] = {0, 0, 1};
  tokens.types = types;
  tokens.positions = positions;
  ASSERT_EQ(rf_engine_hidden(engine, &tokens, std::vector<float>(out).data()), RF_OK) << rf_engine_last_error();
  const auto refused = [&](auto& value, auto bad, const std::string& word) {
    const auto kept = std::exchange(value, bad);
    expect_refused(hidden(), word.c_str());
    value = kept;
  };
  refused(tokens.ids, nullptr, "ids");
  refused(tokens.offsets, nullptr, "offsets");
  for (const int64_t bad : {int64_t{-1}, INT64_MIN}) refused(tokens.sequences, bad, "sequences");
  for (const int64_t bad : {int64_t{0}, int64_t{3}, int64_t{4}, int64_t{-1}, INT64_MAX, INT64_MIN})
    refused(offsets[1], bad, "sequence");
  refused(offsets[0], 1, "offsets");
  refused(offsets[2], -1, "ids");
  for (const int32_t bad : {-1, 31, INT32_MAX, INT32_MIN}) {
    refused(ids[2], bad, "token ids");
    refused(types[1], bad, "token types");
  }
  for (const int64_t bad : {int64_t{-1}, int64_t{16}, int64_t{1} << 40, INT64_MAX, INT64_MIN})
    refused(positions[2], bad, std::to_string(bad));
}

TEST_F(EngineCApi, Rows) {
  const std::pair<std::vector<int64_t>, int64_t> bad[] = {{{0}, -1},   {{0}, INT64_MIN}, {{3}, 1},        {{-1}, 1},
                                                          {{1, 1}, 2}, {{2, 0}, 2},      {{INT64_MAX}, 1}};
  for (const auto& [rows, count] : bad)
    expect_refused(rf_engine_vocabulary_logits(engine, &tokens, rows.data(), count, out.data()), "rows");
}

TEST_F(EngineCApi, Poolings) {
  for (const int bad : {6, 7}) {  // what the type can hold
    rf_engine_pooling pooling;
    std::memcpy(&pooling, &bad, sizeof bad);
    expect_refused(rf_engine_pooled(engine, &tokens, pooling, out.data()), "pooling");
  }
  expect_refused(rf_engine_pooled(engine, &tokens, RF_ENGINE_POOLER, out.data()), "pooler");  // a masked LM has none
}

TEST_F(EngineCApi, PoolingsOfAttendedTokens) {
  constexpr size_t kWidth = 24;
  const auto pooled = [&](rf_engine_pooling pooling) {
    EXPECT_EQ(rf_engine_pooled(engine, &tokens, pooling, out.data()), RF_OK) << rf_engine_last_error();
    return std::vector<float>(out.begin(), out.begin() + 2 * kWidth);
  };
  const auto expect_rows = [&](rf_engine_pooling pooling, size_t first, size_t second) {
    ASSERT_EQ(hidden(), RF_OK) << rf_engine_last_error();
    std::vector<float> rows(out.begin() + first * kWidth, out.begin() + (first + 1) * kWidth);
    rows.insert(rows.end(), out.begin() + second * kWidth, out.begin() + (second + 1) * kWidth);
    EXPECT_EQ(pooled(pooling), rows) << pooling;
  };
  uint8_t attend[3] = {1, 0, 1};
  tokens.attend = attend;
  expect_rows(RF_ENGINE_CLS, 0, 2);
  std::swap(attend[1], attend[2]);
  expect_rows(RF_ENGINE_LAST, 0, 1);
  std::fill_n(attend, 3, uint8_t{0});
  for (const rf_engine_pooling pooling : {RF_ENGINE_CLS, RF_ENGINE_LAST}) expect_rows(pooling, 0, 1);
  for (const rf_engine_pooling pooling : {RF_ENGINE_MEAN, RF_ENGINE_MAX, RF_ENGINE_MEAN_SQRT_LEN})
    EXPECT_EQ(pooled(pooling), std::vector<float>(2 * kWidth)) << pooling;
}

}  // namespace
}  // namespace rf::tests
