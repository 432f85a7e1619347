// Rows that are masked once (nested_rows.h).
#include "nested_rows.h"

#include <ATen/ATen.h>

#include "rf/data/random.h"

namespace rf::reproduce {

namespace {

constexpr int64_t kIgnored = -100;
constexpr int64_t kBatchTokens = 8192;

at::Tensor middle(const at::Tensor& x_BT, int64_t tokens) {
  const int64_t begin = (x_BT.size(1) - tokens) / 2;
  return x_BT.slice(1, begin, begin + tokens);
}

at::Tensor between(const at::Tensor& x_BT, int64_t first, int64_t last) {
  const int64_t rows = x_BT.size(0);
  return at::cat({x_BT.new_full({rows, 1}, first), x_BT, x_BT.new_full({rows, 1}, last)}, 1);
}

}  // namespace

at::Tensor NestedRows::ids(int64_t length) const {
  return between(middle(ids_BT, length - 2), cls, sep);
}

at::Tensor NestedRows::labels(int64_t length) const {
  return between(middle(labels_BT, length - 2), kIgnored, kIgnored);
}

NestedRows nested_rows(const at::Tensor& text_BT, const NestedMasking& masking) {
  const int64_t rows = text_BT.size(0), tokens = text_BT.size(1);
  at::Tensor masked_BT = at::zeros({rows, tokens}, at::kBool), inner_BT = at::zeros({rows, tokens}, at::kBool);
  middle(inner_BT, masking.shortest - 2).fill_(true);
  bool* masked = masked_BT.mutable_data_ptr<bool>();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t t = 0; t < tokens; ++t, ++masked) {
      const data::PhiloxBlock words =
          data::draw(masking.seed, data::Stream::kMask, static_cast<uint32_t>(t), /*epoch=*/0, row);
      *masked = words[0] < data::threshold(masking.probability);
    }
  }
  return {.ids_BT = text_BT.masked_fill(masked_BT, masking.mask),
          .labels_BT = text_BT.masked_fill(masked_BT.logical_and(inner_BT).logical_not(), kIgnored),
          .cls = masking.cls,
          .sep = masking.sep};
}

MaskedTokens measure(nn::Model& model, const NestedRows& rows, int64_t length) {
  const at::NoGradGuard no_grad;
  model.eval();
  const at::Tensor ids_BT = rows.ids(length), labels_BT = rows.labels(length);
  const int64_t batch = std::max<int64_t>(kBatchTokens / length, 1);
  MaskedTokens found;
  for (int64_t begin = 0; begin < ids_BT.size(0); begin += batch) {
    nn::Input input;
    input.ids_BT = ids_BT.slice(0, begin, begin + batch);
    const at::Tensor labels_N = labels_BT.slice(0, begin, begin + batch).flatten();
    const at::Tensor places_N = (labels_N != kIgnored).nonzero().squeeze(-1);
    if (places_N.size(0) == 0) continue;
    const at::Tensor hidden_NC = model.encode(input).flatten(0, 1).index_select(0, places_N);
    const at::Tensor logits_NV = model.masked_lm_logits(hidden_NC).to(at::kDouble);
    const at::Tensor targets_N = labels_N.index_select(0, places_N);
    found.loss += at::cross_entropy_loss(logits_NV, targets_N, /*weight=*/{}, at::Reduction::Sum).item<double>();
    found.accuracy += (logits_NV.argmax(-1) == targets_N).sum().item<double>();
    found.tokens += targets_N.size(0);
  }
  const auto tokens = static_cast<double>(std::max<int64_t>(found.tokens, 1));
  found.loss /= tokens;
  found.accuracy /= tokens;
  return found;
}

}  // namespace rf::reproduce
