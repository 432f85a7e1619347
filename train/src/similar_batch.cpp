// Rows, masks and targets of pairs (similar_batch.h).
#include "similar_batch.h"

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "rf/data/random.h"

namespace rf::train {

namespace {

constexpr double kWordProbability = 0.15, kMaskShare = 0.8, kRandomShare = 0.1;

// The ids that the model reads. row: of the data set, 2 for each pair.
std::vector<int32_t> read_ids(const SimilarPair::Row& row, int64_t number, const SimilarMasking& masking) {
  std::vector<int32_t> ids = row.ids;
  const auto words = [&](uint32_t t) {
    return data::draw(masking.seed, data::Stream::kMask, t, masking.epoch, number);
  };
  if (words(0)[3] >= data::threshold(masking.rows)) return ids;
  const auto special = masking.vocabulary->special();
  data::PhiloxBlock word{};
  for (size_t t = 1; t < ids.size() && row.types[t] == 0; ++t) {
    if (ids[t] == special.sep) continue;
    if (row.starts_word[t] != 0 || t == 1) word = words(static_cast<uint32_t>(t));
    if (word[0] >= data::threshold(kWordProbability)) continue;
    if (word[1] < data::threshold(kMaskShare)) {
      ids[t] = special.mask;
    } else if (word[1] < data::threshold(kMaskShare + kRandomShare)) {
      const uint32_t own = words(static_cast<uint32_t>(t))[2];
      ids[t] = static_cast<int32_t>(data::scale_to(own, masking.vocabulary->size()));
    }
  }
  return ids;
}

}  // namespace

SimilarBatch similar_batch(const std::vector<SimilarPair>& pairs, std::span<const int64_t> indices,
                           const SimilarMasking& masking, int64_t pad_id) {
  int64_t length = 0;
  for (const int64_t index : indices) {
    for (const SimilarPair::Row& row : pairs[static_cast<size_t>(index)].rows) {
      length = std::max(length, std::ssize(row.ids));
    }
  }
  const int64_t rows = 2 * std::ssize(indices);
  SimilarBatch batch;
  at::Tensor& ids_BT = batch.input.ids_BT = at::full({rows, length}, pad_id, at::kLong);
  at::Tensor& types_BT = batch.input.types_BT = at::zeros({rows, length}, at::kLong);
  at::Tensor& mask_BT = batch.input.mask_BT = at::zeros({rows, length}, at::kBool);
  std::vector<int64_t> tokens, labels;
  int64_t begin = 0;
  for (const int64_t index : indices) {
    for (int64_t side = 0; side < 2; ++side, begin += length) {
      const SimilarPair::Row& row = pairs[static_cast<size_t>(index)].rows[side];
      const std::vector<int32_t> ids = read_ids(row, 2 * index + side, masking);
      std::copy(ids.begin(), ids.end(), ids_BT.mutable_data_ptr<int64_t>() + begin);
      std::copy(row.types.begin(), row.types.end(), types_BT.mutable_data_ptr<int64_t>() + begin);
      std::fill_n(mask_BT.mutable_data_ptr<bool>() + begin, ids.size(), true);
      for (size_t t = 1; t < ids.size(); ++t) {
        if (row.types[t] == 0) continue;
        tokens.push_back(begin + static_cast<int64_t>(t) - 1);
        labels.push_back(row.ids[t]);
      }
    }
  }
  batch.tokens_N = at::tensor(tokens, at::kLong);
  batch.labels_N = at::tensor(labels, at::kLong);
  return batch;
}

}  // namespace rf::train
