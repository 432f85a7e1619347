// Records to examples to tensors, and logits of windows to logits of inputs (task.h).
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "task.h"

namespace rf::train {

int64_t Example::longest_row() const {
  size_t longest = 0;
  for (const TokenRow& row : rows) longest = std::max(longest, row.ids.size());
  return static_cast<int64_t>(longest);
}

void add_input(std::span<const text::Row> rows, Example& example) {
  for (const text::Row& row : rows) example.rows.push_back(token_row(row));
  example.rows_of_input.push_back(static_cast<int64_t>(rows.size()));
}

void add_text_input(const data::Record& record, const TaskSettings& settings, InputRows& rows, Example& example) {
  const std::string first = record.text(settings.columns.at("text"));
  std::string second;
  text::TextPair texts{first};
  if (const auto pair = settings.columns.find("pair"); pair != settings.columns.end()) {
    second = record.text(pair->second);
    texts.second = second;
  }
  add_input(rows.rows(record.place(), texts), example);
}

Batch make_batch(std::span<const Example* const> examples, int64_t pad_id) {
  Batch batch;
  batch.examples.assign(examples.begin(), examples.end());
  std::vector<int64_t> rows_of_input;
  int64_t rows = 0, length = 0;
  bool has_padding = false;
  for (const Example* example : examples) length = std::max(length, example->longest_row());
  for (const Example* example : examples) {
    rows += static_cast<int64_t>(example->rows.size());
    rows_of_input.insert(rows_of_input.end(), example->rows_of_input.begin(), example->rows_of_input.end());
    for (const TokenRow& row : example->rows) has_padding |= static_cast<int64_t>(row.ids.size()) < length;
  }
  batch.rows_of_input = at::tensor(rows_of_input, at::kLong);
  at::Tensor& ids_RT = batch.input.ids_BT = at::full({rows, length}, pad_id, at::kLong);
  at::Tensor& types_RT = batch.input.types_BT = at::zeros({rows, length}, at::kLong);
  at::Tensor segments_RT = at::full({rows, length}, -1, at::kInt);  // -1: padding
  int64_t at_row = 0;
  for (const Example* example : examples) {
    for (const TokenRow& row : example->rows) {
      const int64_t begin = at_row++ * length;
      std::copy(row.ids.begin(), row.ids.end(), ids_RT.mutable_data_ptr<int64_t>() + begin);
      std::copy(row.types.begin(), row.types.end(), types_RT.mutable_data_ptr<int64_t>() + begin);
      std::fill_n(segments_RT.mutable_data_ptr<int32_t>() + begin, row.ids.size(), 0);
    }
  }
  if (has_padding) batch.input.segments_BT = segments_RT;
  return batch;
}

at::Tensor pooled(const at::Tensor& logits_RL, const Batch& batch, Pooling pooling) {
  const int64_t inputs = batch.rows_of_input.size(0);
  if (inputs == logits_RL.size(0)) return logits_RL;
  std::vector<at::Tensor> of_inputs;
  int64_t row = 0;
  for (int64_t i = 0; i < inputs; ++i) {
    const int64_t count = batch.rows_of_input[i].item<int64_t>();
    const at::Tensor windows_WL = logits_RL.narrow(0, row, count);
    of_inputs.push_back(pooling == Pooling::kMean ? windows_WL.mean(0) : windows_WL.amax(0));
    row += count;
  }
  return at::stack(of_inputs);
}

}  // namespace rf::train
