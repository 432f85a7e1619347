// The loader rules of R-HF-03: which differences between a file and a model are fine, and which are errors.
// tests/oracles/test_encoder_parity.py has those of files that transformers writes, tests/nn/test_checkpoint.py that of
// another head.
#include "io/support.h"
#include "rf/model/weights.h"

namespace rf {
namespace {

using Names = std::vector<std::string>;

ModelConfig one_layer() {
  ModelConfig c;
  c.vocab_size = 20, c.embedding_size = c.hidden_size = 8, c.intermediate_size = 10;
  c.num_hidden_layers = 1, c.num_attention_heads = 2, c.max_position_embeddings = 5, c.num_labels = 3;
  return c;
}

std::vector<NamedShape> file_of(const ModelConfig& config, Head head) {
  std::vector<NamedShape> file;
  for (const WeightSpec& spec : weight_specs(config, head)) file.push_back({spec.name, spec.shape});
  return file;
}

void remove_tensor(std::vector<NamedShape>& file, const std::string& name) {
  ASSERT_EQ(std::erase_if(file, [&](const NamedShape& tensor) { return tensor.name == name; }), 1u) << name;
}

Names spec_names(const ModelConfig& config, Head head) {
  Names names;
  for (const WeightSpec& spec : weight_specs(config, head)) names.push_back(spec.name);
  return names;
}

WeightMatch strict(const ModelConfig& config, Head head, const std::vector<NamedShape>& file) {
  return match_weights(config, head, file, FreshHead::kForbidden);
}

// tests/oracles/test_tied_heads.py has copies that are.
TEST(WeightMatch, RuleBShapesOfTiedCopies) {
  auto file = file_of(one_layer(), Head::kMaskedLm);
  file.push_back({"cls.predictions.decoder.bias", {21}});
  expect_error([&] { strict(one_layer(), Head::kMaskedLm, file); }, {"cls.predictions.decoder.bias", "[20]", "[21]"});
}

ModelConfig small_bert() {
  ModelConfig c = one_layer();
  c.family = Family::kBert;
  c.position_encodings = {{"learned", "{}"}};
  return c;
}

// Of every family: a finished pretraining opens as a language model and a bare encoder, and pretraining goes on from
// one and from a file without pairs.
TEST(WeightMatch, PretrainingWithPairs) {
  for (const ModelConfig& c : {one_layer(), small_bert()}) {
    const std::string pooler = body_prefix(c) + "pooler.dense.", pairs = "cls.seq_relationship.";
    const auto file = file_of(c, Head::kPreTraining), without = file_of(c, Head::kMaskedLm);
    EXPECT_EQ(file.size(), without.size() + 4);
    EXPECT_EQ(strict(c, Head::kPreTraining, file).load, spec_names(c, Head::kPreTraining));
    EXPECT_EQ(strict(c, Head::kMaskedLm, file).ignored,
              (Names{pooler + "weight", pooler + "bias", pairs + "weight", pairs + "bias"}));
    EXPECT_EQ(strict(c, Head::kNone, file).load, spec_names(c, Head::kNone));
    EXPECT_EQ(match_weights(c, Head::kPreTraining, without, FreshHead::kAllowed).fresh,
              (Names{pooler + "weight", pooler + "bias", pairs + "weight", pairs + "bias"}));
    expect_error([&] { strict(c, Head::kPreTraining, without); }, {"ForPreTraining", "4 missing", "pooler"});
  }
}

// A RoFormer's file whose config.json now names another encoding.
TEST(WeightMatch, ATableThatIsNotUsedIsIgnored) {
  ModelConfig c = one_layer();
  const auto file = file_of(c, Head::kMaskedLm);
  c.position_encodings = {{"rope", R"({"rope_theta":500.0})"}};
  EXPECT_EQ(strict(c, Head::kMaskedLm, file).ignored, Names{"roformer.encoder.embed_positions.weight"});
}

TEST(WeightMatch, MissingAndUnexpectedTensorsAreErrors) {
  const ModelConfig c = one_layer();
  auto file = file_of(c, Head::kMaskedLm);
  file.push_back({"roformer.encoder.layer.1.output.dense.bias", {8}});
  expect_error([&] { strict(c, Head::kMaskedLm, file); }, {"RoFormerForMaskedLM", "layer.1.output.dense.bias", "[8]"});
  file.pop_back();
  remove_tensor(file, "cls.predictions.bias");
  remove_tensor(file, "roformer.encoder.layer.0.output.dense.bias");
  expect_error([&] { strict(c, Head::kMaskedLm, file); },
               {"2 missing", "roformer.encoder.layer.0.output.dense.bias", "[8]"});
  expect_error([&] { strict(c, Head::kMaskedLm, {}); }, {"missing", "word_embeddings"});
  file = file_of(c, Head::kNone);
  file.push_back(file[0]);
  expect_error([&] { strict(c, Head::kNone, file); }, {"unique", "word_embeddings"});
}

TEST(WeightMatch, HalfAHeadIsDamage) {
  const ModelConfig c = one_layer();
  auto file = file_of(c, Head::kSequenceClassification);
  remove_tensor(file, "classifier.out_proj.bias");
  expect_error([&] { match_weights(c, Head::kSequenceClassification, file, FreshHead::kAllowed); },
               {"1 missing", "classifier.out_proj.bias"});
}

TEST(WeightMatch, MixedPrefixesAreAnError) {
  const ModelConfig c = one_layer();
  auto file = file_of(c, Head::kMaskedLm);
  file.push_back({"embeddings.word_embeddings.weight", {20, 8}});
  expect_error([&] { strict(c, Head::kMaskedLm, file); }, {"\"embeddings.word_embeddings.weight\""});
}

// Names come from a file: no terminal codes, no half a character where they are cut.
TEST(WeightMatch, NamesInMessagesArePrintable) {
  auto file = file_of(one_layer(), Head::kMaskedLm);
  file.push_back({"x\x1b[31m\n\xc3\xa9" + std::string(1000, 'y'), {1}});
  expect_error([&] { strict(one_layer(), Head::kMaskedLm, file); }, {"\"x\\x1b[31m\\x0a\\xc3\\xa9yyy", "(1009 bytes)"});
}

}  // namespace
}  // namespace rf
