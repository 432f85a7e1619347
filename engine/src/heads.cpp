// Heads and poolings (see the header).
#include "heads.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "rf/io/error.h"

namespace rf::engine {

namespace {

struct HiddenRows {
  rf_dtype dtype;
  const char* x;
  int64_t width;
  void read(int64_t row, float* to) const { to_floats(dtype, width, x + row * width * bytes_of(dtype), to); }
};

void pool_max(const HiddenRows& rows, int64_t tokens, const uint8_t* attend, float* row, float* out) {
  std::fill_n(out, rows.width, -std::numeric_limits<float>::infinity());
  for (int64_t t = 0; t < tokens; ++t) {
    if (attend != nullptr && attend[t] == 0) continue;
    rows.read(t, row);
    for (int64_t c = 0; c < rows.width; ++c) out[c] = std::max(out[c], row[c]);
  }
}

// The sum of the weights: 1 for each token, or its number from 1.
double pool_sum(const HiddenRows& rows, int64_t tokens, const uint8_t* attend, bool is_weighted, float* row,
                double* sum) {
  double weights = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    if (attend != nullptr && attend[t] == 0) continue;
    const auto weight = static_cast<double>(is_weighted ? t + 1 : 1);
    weights += weight;
    rows.read(t, row);
    for (int64_t c = 0; c < rows.width; ++c) sum[c] += weight * row[c];
  }
  return weights;
}

}  // namespace

HeadLayers::HeadLayers(const ModelConfig& config, Head head, const Weights& weights, const std::string& prefix,
                       Precision precision)
    : precision_(of_small_layers(precision)), hidden_(config.output_width()) {
  if (config.prefix_lm) pooler_activation_.reset();
  const std::string pooler = pooler_name(config, head);
  if (weights.has(pooler + ".weight")) pooler_ = read_linear(weights, pooler, precision_);
  std::vector<HeadStage> stages = head_stages(config, head);
  if (stages.empty()) return;
  const HeadStage last = std::move(stages.back());
  stages.pop_back();
  for (const HeadStage& stage : stages) {
    if (stage.linear == pooler) {
      starts_with_pooler_ = true;
      continue;
    }
    stages_.push_back({read_linear(weights, stage.linear, precision_), stage.activation,
                       stage.norm.empty() ? Norm() : read_norm(weights, stage.norm, config, stage.outputs)});
  }
  if (!is_language_model(head)) {
    last_ = read_linear(weights, last.linear, precision_);
    return;
  }
  logit_scale_ = config.heads.logit_scale;
  logit_cap_ = config.heads.logit_cap;
  const bool is_own = weights.has(last.linear + ".weight"), own_bias = weights.has(last.linear + ".bias");
  const std::string weight = is_own ? last.linear + ".weight" : prefix + "embeddings.word_embeddings.weight";
  last_ = read_matrix(weights, weight, precision, read_bias(weights, own_bias ? last.linear : "cls.predictions"));
}

HeadLayers::HeadLayers(Linear last, Precision precision)
    : precision_(of_small_layers(precision)), hidden_(last.in()), last_(std::move(last)) {}

int64_t HeadLayers::logits() const {
  if (last_.empty()) fail("model", "logits need a model with a head, got a bare encoder");
  return last_.out();
}

void HeadLayers::pool(int64_t rows, const void* x, int64_t x_stride, float* y, Memory& memory) const {
  const rf_dtype dtype = activation_dtype(precision_);
  memory.result.resize(static_cast<size_t>(rows * hidden_ * bytes_of(dtype)));
  pooler_(rows, x, x_stride, memory.result.data(), pooler_activation_);
  to_floats(dtype, rows * hidden_, memory.result.data(), y);
}

void HeadLayers::operator()(int64_t rows, const void* x, int64_t x_stride, float* y, Memory& memory) const {
  const rf_dtype dtype = activation_dtype(precision_);
  const auto apply = [&](const Linear& product, std::optional<Activation> activation = std::nullopt) {
    memory.result.resize(static_cast<size_t>(rows * product.out() * bytes_of(dtype)));
    product(rows, x, x_stride, memory.result.data(), activation);
    memory.read.swap(memory.result);
    x = memory.read.data();
    x_stride = product.out();
  };
  if (starts_with_pooler_) apply(pooler_, Activation::kTanh);
  for (const Stage& stage : stages_) {
    apply(stage.product, stage.activation);
    if (stage.norm.columns > 0) stage.norm(dtype, rows, x, nullptr, memory.read.data());
  }
  if (dtype == RF_F32) {
    last_(rows, x, x_stride, y);
  } else {
    apply(last_);
    to_floats(dtype, rows * logits(), x, y);
  }
  scale_and_cap(RF_F32, rows * logits(), logit_scale_, logit_cap_, y);
}

void pool_sequence(Pooling pooling, rf_dtype dtype, const void* x, int64_t tokens, int64_t width, const uint8_t* attend,
                   float* out) {
  const HiddenRows rows{dtype, static_cast<const char*>(x), width};
  if (pooling == Pooling::kCls || pooling == Pooling::kLast) {
    const int64_t step = pooling == Pooling::kCls ? 1 : -1, end = step > 0 ? tokens : -1;
    int64_t token = step > 0 ? 0 : tokens - 1;
    while (attend != nullptr && token != end && attend[token] == 0) token += step;
    return rows.read(token == end ? 0 : token, out);
  }
  // Kept from call to call.
  thread_local std::vector<float> row;
  thread_local std::vector<double> sum;
  row.resize(static_cast<size_t>(width));
  if (pooling == Pooling::kMax) {
    pool_max(rows, tokens, attend, row.data(), out);
    if (!std::isfinite(out[0]) && attend != nullptr &&
        std::all_of(attend, attend + tokens, [](uint8_t a) { return a == 0; })) {
      std::fill_n(out, width, 0.0f);
    }
    return;
  }
  sum.assign(static_cast<size_t>(width), 0);
  const bool is_weighted = pooling == Pooling::kWeightedMean;
  const double n = std::max(1.0, pool_sum(rows, tokens, attend, is_weighted, row.data(), sum.data()));
  const double divisor = pooling == Pooling::kMeanSqrtLen ? std::sqrt(n) : n;
  for (int64_t c = 0; c < width; ++c) out[c] = static_cast<float>(sum[static_cast<size_t>(c)] / divisor);
}

}  // namespace rf::engine
