// Sequences that grow step by step, for the sanitizers; test_decoder.py and test_linear_generation.py have the values.
#include "rf/engine/decoder.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "engine/model_directory.h"
#include "rf/engine/model.h"
#include "tolerances.h"

namespace rf::tests {
namespace {

using engine::Decoder;
using engine::Model;

constexpr int32_t kIds[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8};

std::vector<float> append(Decoder& decoder, std::vector<int64_t> sequences, std::span<const int32_t> each,
                          int64_t vocab_size) {
  std::vector<int64_t> offsets = {0};
  std::vector<int32_t> ids;
  for (size_t i = 0; i < sequences.size(); ++i) {
    ids.insert(ids.end(), each.begin(), each.end());
    offsets.push_back(std::ssize(ids));
  }
  std::vector<float> logits(sequences.size() * static_cast<size_t>(vocab_size));
  decoder.append(sequences, offsets, ids, logits.data());
  return logits;
}

float largest_difference(std::span<const float> a, std::span<const float> b) {
  float largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

float largest(std::span<const float> x) {
  float largest = 0;
  for (const float value : x) largest = std::max(largest, std::abs(value));
  return largest;
}

// Three sequences of the same tokens: one at once, one in two steps, and a copy of that over others. tolerance: of
// their logits, relative to the largest.
void expect_equal_logits(const nlohmann::json& config, double tolerance) {
  SCOPED_TRACE(config.dump());
  const ModelDirectory directory(config);
  const Model model(directory.path());
  const int64_t vocab_size = model.info().vocab_size;
  const std::span<const int32_t> ids(kIds), first = ids.first(7), rest = ids.subspan(7);
  Decoder decoder(model, 3, std::ssize(ids));
  const std::vector<float> whole = append(decoder, {0}, ids, vocab_size);
  append(decoder, {1}, first, vocab_size);
  append(decoder, {2}, rest, vocab_size);
  decoder.truncate(2, 0);
  decoder.copy(1, 2);
  const std::vector<float> both = append(decoder, {1, 2}, rest, vocab_size);
  const std::span<const float> grown = std::span(both).first(whole.size()), copied = std::span(both).last(whole.size());
  EXPECT_TRUE(std::ranges::equal(grown, copied));
  EXPECT_LE(largest_difference(whole, grown), tolerance * largest(whole));
}

TEST(EngineDecoder, KeysAndValues) {
  expect_equal_logits(small_config("roformer", "RoFormerForCausalLM", {{"is_decoder", true}}), 0);
  expect_equal_logits(small_config("bert", "BertLMHeadModel", {{"is_decoder", true}}), 0);
}

TEST(EngineDecoder, SumsOfLinearAttention) {
  for (const char* map : {"elu", "cosine", "shen"}) {
    for (const char* site : {"before_map", "after_map"}) {
      expect_equal_logits(linear_config("RfEncoderForCausalLM", map, {{"rope_site", site}}, {{"is_decoder", true}}),
                          kFloat32Model);
    }
  }
}

}  // namespace
}  // namespace rf::tests
