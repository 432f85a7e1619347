// Rows that are masked once: every length has the same labels and the same tokens around them.
#include "nested_rows.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tolerances.h"

namespace rf::reproduce {
namespace {

constexpr int64_t kRows = 40, kLongest = 66, kShortest = 18, kMask = 4, kCls = 2, kSep = 3;

at::Tensor text() {
  return at::arange(kRows * (kLongest - 2), at::kLong).remainder(31).add(5).view({kRows, kLongest - 2});
}

NestedRows made() {
  return nested_rows(text(), {.shortest = kShortest, .mask = kMask, .cls = kCls, .sep = kSep});
}

TEST(NestedRows, ALongerRowHasAShorterOneInItsMiddle) {
  const NestedRows rows = made();
  const at::Tensor longest = rows.ids(kLongest);
  ASSERT_EQ(longest.size(1), kLongest);
  for (const int64_t length : {kShortest, int64_t{32}, int64_t{50}, kLongest}) {
    const at::Tensor ids = rows.ids(length);
    ASSERT_EQ(ids.size(1), length);
    EXPECT_TRUE((ids.select(1, 0) == kCls).all().item<bool>());
    EXPECT_TRUE((ids.select(1, length - 1) == kSep).all().item<bool>());
    const int64_t begin = (kLongest - length) / 2 + 1;
    EXPECT_TRUE(ids.slice(1, 1, length - 1).equal(longest.slice(1, begin, begin + length - 2))) << length;
  }
}

TEST(NestedRows, LabelsAreTheSameMaskedTokensAtEveryLength) {
  const NestedRows rows = made();
  const auto labels = [&](int64_t length) {
    const at::Tensor of_length = rows.labels(length);
    return of_length.masked_select(of_length >= 0);
  };
  const at::Tensor shortest = labels(kShortest);
  // 15 % of 40 x 16 tokens, within five standard deviations.
  EXPECT_GT(shortest.size(0), 51);
  EXPECT_LT(shortest.size(0), 141);
  for (const int64_t length : {int64_t{32}, int64_t{50}, kLongest}) EXPECT_TRUE(labels(length).equal(shortest));
  const at::Tensor is_label = rows.labels(kLongest) >= 0, ids = rows.ids(kLongest);
  EXPECT_TRUE((ids.masked_select(is_label) == kMask).all().item<bool>());
  // What is not masked is the text; there are masked tokens outside the shortest row, too.
  const at::Tensor inner = ids.slice(1, 1, kLongest - 1), is_masked = inner == kMask;
  EXPECT_TRUE(inner.masked_select(is_masked.logical_not()).equal(text().masked_select(is_masked.logical_not())));
  EXPECT_GT(is_masked.sum().item<int64_t>(), shortest.size(0));
  EXPECT_TRUE(rows.labels_BT.masked_select(rows.labels_BT >= 0).equal(text().masked_select(rows.labels_BT >= 0)));
}

// A model without an encoding whose attention is that of one row: its loss by hand.
TEST(NestedRows, MeasuresTheMeanOverTheLabels) {
  const at::NoGradGuard no_grad;
  ModelConfig config;
  config.vocab_size = 40;
  config.hidden_size = config.embedding_size = 24;
  config.intermediate_size = 20;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 2;
  config.max_position_embeddings = kLongest;
  at::manual_seed(3);
  nn::Model model(config, Head::kMaskedLm);
  for (at::Tensor& parameter : model.parameters()) parameter.add_(at::randn_like(parameter), 0.3);
  model.to(at::kDouble);
  model.eval();
  const NestedRows rows = made();
  for (const int64_t length : {kShortest, kLongest}) {
    double loss = 0, right = 0;
    int64_t tokens = 0;
    for (int64_t row = 0; row < kRows; ++row) {
      nn::Input input;
      input.ids_BT = rows.ids(length).slice(0, row, row + 1);
      const at::Tensor logits_TV = model.forward(input).logits[0], labels_T = rows.labels(length)[row];
      for (int64_t t = 0; t < length; ++t) {
        const auto label = labels_T[t].item<int64_t>();
        if (label < 0) continue;
        loss -= logits_TV[t].log_softmax(0)[label].item<double>();
        right += logits_TV[t].argmax().item<int64_t>() == label ? 1 : 0;
        ++tokens;
      }
    }
    const MaskedTokens found = measure(model, rows, length);
    EXPECT_EQ(found.tokens, tokens);
    EXPECT_NEAR(found.loss, loss / static_cast<double>(tokens), tests::kFloat64Model);
    EXPECT_DOUBLE_EQ(found.accuracy, right / static_cast<double>(tokens));
  }
}

}  // namespace
}  // namespace rf::reproduce
