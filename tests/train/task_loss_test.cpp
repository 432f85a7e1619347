// Losses of tasks and their gradients against torch's functions and autograd, on logits of padded batches with windows.
#include <ATen/TensorOperators.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "task_model.h"
#include "tolerances.h"

namespace rf::train {
namespace {

using tasks::Example, tasks::Pooling;

constexpr double kSmoothing = 0.1;

// An example whose rows have these numbers of tokens; one input for each number of rows.
Example example_of(std::vector<size_t> lengths, std::vector<int64_t> rows_of_input, std::vector<int64_t> targets) {
  Example example;
  for (const size_t length : lengths) {
    example.rows.push_back({std::vector<int32_t>(length, 7), std::vector<uint8_t>(length, 0), {}});
  }
  example.rows_of_input = std::move(rows_of_input);
  example.targets = std::move(targets);
  return example;
}

std::unique_ptr<tasks::Task> task_of(const std::string& kind, Pooling pooling, std::vector<std::string> labels = {}) {
  tasks::TaskSettings settings;
  settings.kind = kind;
  settings.labels = std::move(labels);
  settings.pooling = pooling;
  settings.windows = kind == "tokens" || kind == "answers" ? 1 : 4;
  std::vector<std::string> words = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"};
  return tasks::task_kind(kind).make(
      settings, std::make_shared<const text::Tokenizer>(text::Vocabulary(words), text::TokenizerOptions{}));
}

// The pooled logits of the rows of an input.
at::Tensor pool(const at::Tensor& rows_WL, Pooling pooling) {
  return pooling == Pooling::kMean ? rows_WL.mean(0) : rows_WL.amax(0);
}

at::Tensor cross_entropy(const at::Tensor& logits_L, int64_t target, double smoothing) {
  return at::cross_entropy_loss(logits_L.unsqueeze(0), at::full({1}, target, at::kLong), {}, at::Reduction::Mean, -100,
                                smoothing);
}

// `expected` is the mean loss, a function of `leaves`: the logits, or those of starts and of ends.
void compare(const tasks::Task& task, const std::vector<Example>& examples, const std::vector<at::Tensor>& leaves,
             const at::Tensor& expected) {
  nn::Output output;
  (leaves.size() == 1 ? output.logits : output.start_logits_BT) = leaves.front();
  if (leaves.size() == 2) output.end_logits_BT = leaves.back();
  std::vector<const Example*> chosen;
  for (const Example& example : examples) chosen.push_back(&example);
  const TaskBatch batch = make_batch(chosen, 0);
  const at::Tensor logits_NL = logits_of(output, batch, task.head());
  const TaskLoss loss = task_loss(task, batch, logits_NL, kSmoothing);
  EXPECT_NEAR(loss.mean, expected.item<float>(), tests::kFloat32Primitive * 10);
  expected.backward();
  std::vector<at::Tensor> gradients;
  for (at::Tensor leaf : leaves) {
    gradients.push_back(leaf.grad().clone());
    leaf.mutable_grad().zero_();
  }
  logits_NL.backward(loss.gradient_NL);
  for (size_t i = 0; i < leaves.size(); ++i) {
    EXPECT_LE((leaves[i].grad() - gradients[i]).abs().max().item<float>(), tests::kFloat32Primitive);
    EXPECT_GT(gradients[i].abs().max().item<float>(), 1e-3f);
  }
}

at::Tensor random_logits(at::IntArrayRef shape) {
  at::manual_seed(1);
  return at::randn(shape).requires_grad_(true);
}

class TaskLosses : public ::testing::TestWithParam<Pooling> {};
INSTANTIATE_TEST_SUITE_P(Poolings, TaskLosses, ::testing::Values(Pooling::kMean, Pooling::kMax));

TEST_P(TaskLosses, Classification) {
  const std::vector<Example> examples = {example_of({3, 2, 3}, {3}, {2}), example_of({2}, {1}, {0})};
  const at::Tensor logits_RL = random_logits({4, 3});
  const at::Tensor expected = (cross_entropy(pool(logits_RL.narrow(0, 0, 3), GetParam()), 2, kSmoothing) +
                               cross_entropy(logits_RL[3], 0, kSmoothing)) /
                              2;
  compare(*task_of("classification", GetParam(), {"a", "b", "c"}), examples, {logits_RL}, expected);
}

TEST_P(TaskLosses, MultiLabel) {
  const std::vector<Example> examples = {example_of({3, 2, 3}, {3}, {1, 0, 1}), example_of({2}, {1}, {0, 0, 1})};
  const at::Tensor logits_RL = random_logits({4, 3});
  const at::Tensor pooled_NL = at::stack({pool(logits_RL.narrow(0, 0, 3), GetParam()), logits_RL[3]});
  const at::Tensor targets_NL = at::tensor({1.0, 0.0, 1.0, 0.0, 0.0, 1.0}, at::kFloat).view({2, 3});
  compare(*task_of("multi_label", GetParam(), {"a", "b", "c"}), examples, {logits_RL},
          at::binary_cross_entropy_with_logits(pooled_NL, targets_NL));
}

TEST_P(TaskLosses, Regression) {
  std::vector<Example> examples = {example_of({3, 2}, {2}, {}), example_of({2}, {1}, {})};
  examples[0].number = 1.5;
  examples[1].number = -0.5;
  const at::Tensor logits_R1 = random_logits({3, 1});
  const at::Tensor pooled_N = at::stack({pool(logits_R1.narrow(0, 0, 2), GetParam())[0], logits_R1[2][0]});
  compare(*task_of("regression", GetParam()), examples, {logits_R1},
          at::mse_loss(pooled_N, at::tensor({1.5, -0.5}, at::kFloat)));
}

TEST_P(TaskLosses, Triples) {
  const std::vector<Example> examples = {example_of({3, 2, 2}, {2, 1}, {1}), example_of({2, 2}, {1, 1}, {0})};
  const at::Tensor logits_R1 = random_logits({5, 1});
  const at::Tensor pairs_N =
      at::stack({pool(logits_R1.narrow(0, 0, 2), GetParam())[0], logits_R1[2][0], logits_R1[3][0], logits_R1[4][0]});
  compare(*task_of("triples", GetParam()), examples, {logits_R1},
          at::binary_cross_entropy_with_logits(pairs_N, at::tensor({0.0, 1.0, 1.0, 0.0}, at::kFloat)));
}

TEST_P(TaskLosses, Choice) {
  const std::vector<Example> examples = {example_of({3, 2, 2, 4}, {1, 2, 1}, {1}), example_of({2, 2}, {1, 1}, {0})};
  const at::Tensor logits_R1 = random_logits({6, 1});
  const at::Tensor first =
      at::stack({logits_R1[0][0], pool(logits_R1.narrow(0, 1, 2), GetParam())[0], logits_R1[3][0]});
  const at::Tensor expected =
      (cross_entropy(first, 1, kSmoothing) + cross_entropy(logits_R1.narrow(0, 4, 2).flatten(), 0, kSmoothing)) / 2;
  compare(*task_of("choice", GetParam()), examples, {logits_R1}, expected);
}

TEST(TaskLoss, Tokens) {
  std::vector<Example> examples = {example_of({3, 4}, {2}, {1, 0, 2, 1}), example_of({5}, {1}, {2})};
  examples[0].places = {{0, 1}, {-1, -1}, {1, 2}, {1, 3}};
  examples[1].places = {{0, 4}};
  const at::Tensor logits_RTL = random_logits({3, 5, 3});
  const at::Tensor expected =
      (cross_entropy(logits_RTL[0][1], 1, kSmoothing) + cross_entropy(logits_RTL[1][2], 2, kSmoothing) +
       cross_entropy(logits_RTL[1][3], 1, kSmoothing) + cross_entropy(logits_RTL[2][4], 2, kSmoothing)) /
      4;
  compare(*task_of("tokens", Pooling::kMean, {"N", "O", "P"}), examples, {logits_RTL}, expected);
}

TEST(TaskLoss, Answers) {
  const std::vector<Example> examples = {example_of({3, 4}, {2}, {1, 2, 0, 0}), example_of({5}, {1}, {2, 4})};
  const at::Tensor starts_RT = random_logits({3, 5}), ends_RT = (starts_RT.detach() * 2).requires_grad_(true);
  const auto row = [](const at::Tensor& logits_RT, int64_t r, int64_t length, int64_t target) {
    return cross_entropy(logits_RT[r].narrow(0, 0, length), target, kSmoothing);
  };
  const at::Tensor expected = (row(starts_RT, 0, 3, 1) + row(ends_RT, 0, 3, 2) + row(starts_RT, 1, 4, 0) +
                               row(ends_RT, 1, 4, 0) + row(starts_RT, 2, 5, 2) + row(ends_RT, 2, 5, 4)) /
                              6;
  compare(*task_of("answers", Pooling::kMean), examples, {starts_RT, ends_RT}, expected);
}

TEST(TaskLoss, WithoutATermIsNothing) {
  std::vector<Example> examples = {example_of({3}, {1}, {1})};
  examples[0].places = {{-1, -1}};
  const at::Tensor logits_RTL = random_logits({1, 3, 2});
  nn::Output output;
  output.logits = logits_RTL;
  const std::vector<const Example*> chosen = {examples.data()};
  const TaskBatch batch = make_batch(chosen, 0);
  const auto task = task_of("tokens", Pooling::kMean, {"N", "O"});
  const TaskLoss loss = task_loss(*task, batch, logits_of(output, batch, task->head()), 0);
  EXPECT_EQ(loss.mean, 0);
  EXPECT_EQ(loss.gradient_NL.abs().sum().item<float>(), 0);
}

}  // namespace
}  // namespace rf::train
