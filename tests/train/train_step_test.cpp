// A step from k micro-batches is a step from one batch (R-TRN-06); what decays; the loss over masked positions.
#include "train_step.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/masked_select.h>
#include <ATen/ops/randn_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "cross_entropy.h"
#include "step_profile.h"
#include "support.h"
#include "tolerances.h"

namespace rf::train {
namespace {

ModelConfig config() {
  ModelConfig config;
  config.vocab_size = 29, config.hidden_size = config.embedding_size = 16, config.intermediate_size = 24;
  config.num_hidden_layers = config.num_attention_heads = 2;
  config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0;
  return config;
}

std::shared_ptr<nn::Model> model() {
  at::manual_seed(3);
  auto model = std::make_shared<nn::Model>(config(), Head::kMaskedLm);
  model->train();
  return model;
}

constexpr int64_t kLength = 6;

// With the pooler and the layer of pairs, moved by N(0, 0.3).
std::shared_ptr<nn::Model> pair_model() {
  at::manual_seed(3);
  auto model = std::make_shared<nn::Model>(config(), Head::kPreTraining);
  const at::NoGradGuard no_grad;
  for (at::Tensor& parameter : model->parameters()) parameter.add_(at::randn_like(parameter), 0.3);
  model->train();
  return model;
}

// Rows [first, first + rows) of one fixed stream of ids; row r has r % 3 + 1 masked tokens.
LanguageBatch rows(int64_t first, int64_t count) {
  data::Batch batch;
  batch.batch_size = batch.runs = count, batch.length = kLength, batch.real_tokens = count * kLength;
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t t = 0; t < kLength; ++t) {
      batch.ids.push_back(5 + ((first + r) * 7 + t * 3) % 24);
      batch.segments.push_back(0);
      batch.positions.push_back(t);
      if (t > (first + r) % 3) continue;
      batch.places.push_back(r * kLength + t);
      batch.labels.push_back(5 + ((first + r) * 5 + t) % 24);
    }
  }
  return to_tensors(batch);
}

// The same rows, each of them a pair whose second segment begins at its place 3.
LanguageBatch pair_rows(int64_t first, int64_t count) {
  LanguageBatch batch = rows(first, count);
  const at::Tensor row_B1 = at::arange(first, first + count, at::kLong).unsqueeze(1);
  batch.input.types_BT = at::arange(kLength, at::kLong).ge(3).to(at::kLong).expand({count, kLength}).contiguous();
  batch.pair_places_P = at::arange(count, at::kLong) * kLength;
  batch.pair_labels_P = (row_B1.squeeze(1) % 3).eq(1).to(at::kLong);
  return batch;
}

// epsilon 1 makes the first update a smooth function of the gradient; with a small one it is nearly its sign, and
// rounding decides where the gradient is nearly 0.
StepResult one_step(nn::Model& model, const std::vector<LanguageBatch>& batches) {
  AdamW optimizer(trained_parameters(model), {.epsilon = 1.0});
  return train_step(model, optimizer, batches, {Precision::kFloat32, 1.0, 1, 1, 0});
}

// -log softmax(logits)[label], summed over the rows, in double.
at::Tensor cross_entropy_of(const at::Tensor& logits_NV, const at::Tensor& labels_N) {
  return -logits_NV.to(at::kDouble).log_softmax(-1).gather(1, labels_N.unsqueeze(1)).sum();
}

// The gradients are those of mean(tokens) + mean(pairs) by torch's operators, from the pooler's and the layer's own
// weights, and reach the embeddings of types.
TEST(TrainStep, PairsAddTheirMeanLoss) {
  const auto m = pair_model(), reference = pair_model();
  const LanguageBatch batch = pair_rows(0, 7);
  std::map<std::string, at::Tensor> weight;
  for (const auto& item : reference->named_parameters()) weight[item.key()] = item.value();
  const at::Tensor hidden_BTC = reference->encode(batch.input);
  const at::Tensor tokens_NV = reference->masked_lm_logits(hidden_BTC.flatten(0, 1).index_select(0, batch.places_N));
  const at::Tensor pooled_PC = (hidden_BTC.select(1, 0).matmul(weight["roformer.pooler.dense.weight"].t()) +
                                weight["roformer.pooler.dense.bias"])
                                   .tanh();
  const at::Tensor pairs_P2 =
      pooled_PC.matmul(weight["cls.seq_relationship.weight"].t()) + weight["cls.seq_relationship.bias"];
  const at::Tensor token_sum = cross_entropy_of(tokens_NV, batch.labels_N);
  const at::Tensor pair_sum = cross_entropy_of(pairs_P2, batch.pair_labels_P);
  (token_sum / batch.labels_N.numel() + pair_sum / 7).backward();

  // A step of plain descent: epsilon is large, so that the update is proportional to the gradient.
  const StepResult result = one_step(*m, {batch});
  EXPECT_EQ(result.pairs, 7);
  EXPECT_NEAR(result.loss_sum, token_sum.item<double>(), rf::tests::kFloat32Model * token_sum.item<double>());
  EXPECT_NEAR(result.pair_loss_sum, pair_sum.item<double>(), rf::tests::kFloat32Model * pair_sum.item<double>());
  EXPECT_EQ(result.correct_pairs, pairs_P2.argmax(-1).eq(batch.pair_labels_P).sum().item<int64_t>());
  double squares = 0;
  for (const auto& item : reference->named_parameters()) squares += item.value().grad().square().sum().item<double>();
  EXPECT_NEAR(result.gradient_norm, std::sqrt(squares), rf::tests::kFloat32Model * std::sqrt(squares));
  for (const char* name : {"roformer.pooler.dense.weight", "cls.seq_relationship.weight",
                           "roformer.embeddings.token_type_embeddings.weight"}) {
    const at::Tensor moved = m->named_parameters()[name];
    EXPECT_GT(weight[name].grad().abs().max().item<double>(), 1e-4) << name;
    EXPECT_FALSE(moved.equal(weight[name])) << name;
  }
}

TEST(TrainStep, MicroBatchesMakeOneBatch) {
  const auto whole = pair_model(), parts = pair_model();
  const StepResult a = one_step(*whole, {pair_rows(0, 6)});
  const StepResult b = one_step(*parts, {pair_rows(0, 3), pair_rows(3, 1), pair_rows(4, 2)});
  EXPECT_EQ(std::tuple(a.predicted_tokens, a.pairs), std::tuple(12, 6));
  EXPECT_EQ(std::tuple(b.predicted_tokens, b.pairs, b.correct_pairs), std::tuple(12, 6, a.correct_pairs));
  EXPECT_NEAR(a.loss_sum, b.loss_sum, rf::tests::kFloat32Primitive * a.loss_sum);
  EXPECT_NEAR(a.pair_loss_sum, b.pair_loss_sum, rf::tests::kFloat32Model * a.pair_loss_sum);
  EXPECT_NEAR(a.gradient_norm, b.gradient_norm, rf::tests::kFloat32Model * a.gradient_norm);
  for (const auto& item : whole->named_parameters()) {
    const at::Tensor other = parts->named_parameters()[item.key()];
    EXPECT_LE((item.value() - other).abs().max().item<float>(), rf::tests::kFloat32Primitive) << item.key();
  }
}

// Rows without masks have pairs all the same.
TEST(TrainStep, PairsOfAMicroBatchWithoutMasksCount) {
  const auto whole = pair_model(), parts = pair_model();
  LanguageBatch all = pair_rows(0, 4), last = pair_rows(3, 1);
  const at::Tensor of_others = all.places_N.lt(3 * kLength);
  all.places_N = all.places_N.masked_select(of_others);
  all.labels_N = all.labels_N.masked_select(of_others);
  last.places_N = last.labels_N = at::empty({0}, at::kLong);
  const StepResult a = one_step(*whole, {all});
  const StepResult b = one_step(*parts, {pair_rows(0, 3), last});
  EXPECT_EQ(std::tuple(a.pairs, b.pairs), std::tuple(4, 4));
  EXPECT_EQ(a.predicted_tokens, b.predicted_tokens);
  EXPECT_NEAR(a.pair_loss_sum, b.pair_loss_sum, rf::tests::kFloat32Model * a.pair_loss_sum);
  EXPECT_NEAR(a.gradient_norm, b.gradient_norm, rf::tests::kFloat32Model * a.gradient_norm);
}

// Against the formula in double: 21 rows cross two chunks and end inside a third.
class LabelSmoothing : public testing::TestWithParam<double> {};
INSTANTIATE_TEST_SUITE_P(TrainStep, LabelSmoothing, testing::Values(0, 0.1));

TEST_P(LabelSmoothing, CrossEntropyAndItsGradient) {
  const double smoothing = GetParam();
  constexpr int64_t kCount = 21, kVocabulary = 13;
  constexpr double kScale = 0.25;
  const at::Tensor z_NV = at::arange(kCount * kVocabulary, at::kFloat).mul_(0.7).sin_().mul_(3).view({kCount, -1});
  const at::Tensor labels_N = at::arange(kCount, at::kLong).mul_(5).remainder_(kVocabulary);
  const at::Tensor leaf_NV = z_NV.clone().requires_grad_(true);
  const at::Tensor loss = scaled_cross_entropy(leaf_NV.mul(1), labels_N, kScale, smoothing);
  loss.mul(2).backward();
  double expected = 0;
  for (int64_t n = 0; n < kCount; ++n) {
    const int64_t label = labels_N[n].item<int64_t>();
    double sum = 0;
    for (int64_t v = 0; v < kVocabulary; ++v) sum += std::exp(z_NV[n][v].item<double>());
    for (int64_t v = 0; v < kVocabulary; ++v) {
      const double target = (v == label ? 1 - smoothing : 0) + smoothing / kVocabulary;
      expected += kScale * target * (std::log(sum) - z_NV[n][v].item<double>());
      const double slope = 2 * kScale * (std::exp(z_NV[n][v].item<double>()) / sum - target);
      EXPECT_NEAR(leaf_NV.grad()[n][v].item<double>(), slope, rf::tests::kFloat32Primitive);
    }
  }
  EXPECT_NEAR(loss.item<double>(), expected, rf::tests::kFloat32Primitive * expected);
}

TEST(TrainStep, BiasesAndNormsDoNotDecay) {
  const auto m = model();
  int64_t decayed = 0;
  for (const Parameter& p : trained_parameters(*m)) {
    const bool plain = p.name.find("bias") != std::string::npos || p.name.find("LayerNorm") != std::string::npos;
    EXPECT_EQ(p.decay == Decay::kNone, plain) << p.name;
    EXPECT_EQ(p.name.find("embed_positions"), std::string::npos);
    decayed += p.decay == Decay::kApplied;
  }
  EXPECT_EQ(decayed, 2 + 2 * 6 + 1);  // two embeddings, six matrices a layer, the head's transform
}

// What is added to scores, queries or keys, or multiplies scores, is a bias whatever its shape; tables and matrices
// decay.
TEST(TrainStep, BiasesAndGatesOfEncodingsDoNotDecay) {
  using Names = std::set<std::string>;
  const std::map<std::string, Names> decayed = {
      {"learned", {"weight"}},
      {"t5", {}},
      {"transformer-xl", {"layer.0.r_weight"}},
      {"transformer-xl-literal", {"layer.0.r_weight"}},
      {"huang-m1", {}},
      {"huang-m2", {}},
      {"huang-m3", {}},
      {"huang-m4", {"layer.0.key_query"}},
      {"tupe-r", {"pos", "pos_q_weight", "pos_k_weight"}},
      {"shaw-literal", {"key", "value"}},
  };
  for (const auto& [encoding, expected] : decayed) {
    ModelConfig with = config();
    with.num_hidden_layers = 1;
    with.max_position_embeddings = kLength;
    with.position_encodings = {{encoding, "{}"}};
    const nn::Model m(with, Head::kMaskedLm);
    const std::string prefix = "position_encoding.";
    Names names;
    size_t all = 0;
    for (const Parameter& p : trained_parameters(m)) {
      if (!p.name.starts_with(prefix)) continue;
      ++all;
      if (p.decay == Decay::kApplied) names.insert(p.name.substr(prefix.size()));
    }
    EXPECT_EQ(names, expected) << encoding;
    EXPECT_GT(all, 0u) << encoding;
  }
}

TEST(TrainStep, StopsAtALossThatIsNotFinite) {
  const auto m = model();
  {
    const at::NoGradGuard no_grad;
    m->named_parameters()["cls.predictions.bias"].fill_(std::numeric_limits<float>::infinity());
  }
  AdamW optimizer(trained_parameters(*m), {});
  const std::vector<LanguageBatch> batches = {rows(0, 2)};
  const StepPlan step{Precision::kFloat32, 1e-2, 12, 1, 0};
  expect_has(error_of([&] { train_step(*m, optimizer, batches, step); }),
             "the loss must be finite, got nan at step 12");
}

TEST(StepProfile, RefusesOtherSteps) {
  for (const char* steps : {"0", "9", "5:4", "4:9", "4:", ":4", "4:5:6", "-1", "four", "1e1"}) {
    const std::string rule =
        "[profile] the steps must be one of the run's 8 or two with a colon between them, as 20:25";
    EXPECT_EQ(error_of([&] { StepProfile(steps, 8, "profile-", Ranks::alone()); }),
              fmt::format("{}, got \"{}\"", rule, steps));
  }
}

}  // namespace
}  // namespace rf::train
