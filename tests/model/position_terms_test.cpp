// The file of position terms: what is damaged is refused with its reason. tests/engine/test_encodings.py writes and
// reads those of all encodings.
#include "rf/model/position_terms.h"

#include <array>
#include <cmath>
#include <numeric>

#include "io/support.h"
#include "rf/model/computed_encoding.h"

namespace rf {
namespace {

using Metadata = std::map<std::string, std::string>;

class PositionTermsTest : public ::testing::Test {
 protected:
  PositionTermsTest() {
    config_.position_encodings = {{.type = "alibi", .options = "{}"}};
    config_.num_hidden_layers = 2, config_.num_attention_heads = 3, config_.hidden_size = 12;
    std::iota(numbers_.begin(), numbers_.end(), 1.0f);
  }

  io::TensorView view(const std::string& name, std::vector<int64_t> shape, io::DType dtype = io::DType::kF32) const {
    const int64_t count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    return {name, dtype, std::move(shape), std::as_bytes(std::span(numbers_)).first(io::size_of(dtype) * count)};
  }

  // A valid file's metadata.
  static Metadata metadata() {
    return {{"format", "roformer position terms 1"}, {"weights", "h"}, {"tokens", "4"}, {"longest", "all"}};
  }

  std::string reason(const std::vector<io::TensorView>& tensors, const Metadata& entries) const {
    io::write_safetensors(dir_ / kPositionTermsFile, tensors, entries);
    try {
      const PositionTermsFile file(dir_.path(), config_, "h");
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  }

  TempDir dir_;
  ModelConfig config_;
  std::vector<float> numbers_ = std::vector<float>(1000);
};

TEST_F(PositionTermsTest, TheScaleIsWrittenWhole) {
  write_position_terms(dir_.path(), {.shared = {}, .layers = {{}, {}}, .scale = 0.1}, "h");  // in binary without end
  EXPECT_EQ(PositionTermsFile(dir_.path(), config_, "h").terms().scale, 0.1);
}

TEST_F(PositionTermsTest, HashesWhatTermsAreMadeOf) {
  const io::TensorView gate = view("position_encoding.layer.0.gate", {3, 2}), same = gate;
  const io::TensorView key = view("roformer.encoder.layer.0.attention.self.key.weight", {4, 4});
  const io::TensorView head = view("cls.predictions.bias", {5});
  const auto hash = [&](std::vector<const io::TensorView*> tensors) {
    std::map<std::string, const io::TensorView*> by_name;
    for (const io::TensorView* each : tensors) by_name[each->name] = each;
    return position_terms_hash(config_, by_name);
  };
  const std::string first = hash({&gate, &key, &head});
  EXPECT_EQ(first.size(), 32u);
  EXPECT_EQ(hash({&same, &key}), first);  // a head's tensors do not matter
  EXPECT_NE(hash({&gate, &head}), first);
  EXPECT_NE(hash({&key}), first);
  numbers_[5] += 1;
  EXPECT_NE(hash({&gate, &key}), first);
  numbers_[5] -= 1;
  EXPECT_EQ(hash({&gate, &key}), first);
  config_.position_encodings[0].options = R"({"a":1})";
  EXPECT_NE(hash({&gate, &key}), first);
}

TEST_F(PositionTermsTest, RefusesDamage) {
  const auto bias = view("bias", {3, 7});
  Metadata whole = metadata();
  whole["bias.range"] = "-3 3";
  const auto expect_reason = [&](const char* expected, const std::vector<io::TensorView>& tensors, const Metadata& m) {
    tests::expect_has(reason(tensors, m), expected);
  };
  EXPECT_EQ(reason({bias}, whole), "none");
  for (const char* key : {"format", "weights", "tokens", "bias.range"}) {
    Metadata without = whole;
    without.erase(key);
    expect_reason(std::string_view(key) == "format"    ? "got none"
                  : std::string_view(key) == "weights" ? "got those of others"
                                                       : "the metadata must have ",
                  {bias}, without);
  }
  const std::array<const char*, 3> entries[] = {{"format must be", "format", "roformer position terms 2"},
                                                {"tokens must be at least 1, got 0", "tokens", "0"},
                                                {"longest must be a number, got \"9x\"", "longest", "9x"},
                                                {"tokens must be a number", "tokens", "99999999999999999999"},
                                                {"scale must be finite", "scale", "inf"},
                                                {"scale must be a number", "scale", ""},
                                                {"bias.range must be", "bias.range", "3 -3"},
                                                {"bias.range must be a number", "bias.range", "-3"},
                                                {"its range -3..4", "bias.range", "-3 4"}};
  for (const auto& [expected, key, value] : entries) {
    Metadata changed = whole;
    changed[key] = value;
    expect_reason(expected, {bias}, changed);
  }
  const auto named = [&](const char* name) { return view(name, {3, 7}); };
  const auto key = view("position_key", {3, 4, 4});
  const std::pair<const char*, std::vector<io::TensorView>> tensors[] = {
      {"got \"biaz\"", {named("biaz")}},
      {"one of the 2 layers, got \"layers.2.bias\"", {named("layers.2.bias")}},
      {"one of the 2 layers", {named("layers.-1.bias")}},
      {"one of the 2 layers", {named("layers.")}},
      {"for each of the layers", {named("layers.1.bias")}},
      {"of all layers or of each", {bias, named("layers.1.bias"), named("layers.0.bias")}},
      {"must be F32, got F16", {view("bias", {3, 7}, io::DType::kF16)}},
      {"[2, 7]", {view("bias", {2, 7})}},
      {"[3, 7, 1]", {view("bias", {3, 7, 1})}},
      {"given together", {bias, key}},
      {"given together", {bias, key, view("position_query", {3, 5, 4})}},
      {"a row for each of the 4 tokens, got 3",
       {bias, view("position_key", {3, 3, 4}), view("position_query", {3, 3, 4})}},
      {"content_bias must fit", {bias, view("content_bias", {3, 5})}},
      {"rotary_frequencies must fit", {bias, view("rotary_frequencies", {1, 3})}}};
  for (const auto& [expected, damaged] : tensors) expect_reason(expected, damaged, whole);
  numbers_[6] = std::nanf("");
  expect_reason("terms must be finite, got nan in bias at element 6", {bias}, whole);
}

TEST(ComputedEncoding, SaysWhichModelsNeedAFile) {
  ModelConfig config;
  const auto needs = [&](std::vector<EncodingConfig> encodings) {
    config.position_encodings = std::move(encodings);
    return needs_position_terms(config);
  };
  EXPECT_FALSE(needs({{"rope", "{}"}}));
  EXPECT_FALSE(needs({{"rope", R"({"precision":"float32","trainable":true})"}}));
  EXPECT_TRUE(needs({{"rope", R"({"precision":"float32"})"}}));
  EXPECT_FALSE(needs({{"sinusoidal", "{}"}, {"xpos", "{}"}, {"nezha", "{}"}, {"learned", "{}"}, {"none", "{}"}}));
  EXPECT_TRUE(needs({{"rope", "{}"}, {"alibi", "{}"}}));
  EXPECT_THROW(needs({{"nezha", R"({"no_such_key":1})"}}), Error);
}

}  // namespace

}  // namespace rf
