// Heads and poolings (see the header).
#include "heads.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "rf/io/error.h"

namespace rf::engine {

namespace {

// Small layers of float32 weights in int8 would lose more than they gain.
Precision of_small_layers(Precision precision) {
  return precision == Precision::kInt8 ? Precision::kFloat32 : precision;
}

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
    : head_(head), precision_(of_small_layers(precision)), hidden_(config.hidden_size) {
  const HeadSpec spec = head_spec(config);
  using Transform = HeadSpec::Transform;
  if (config.prefix_lm) pooler_activation_.reset();
  const auto linear = [&](const std::string& name) { return read_linear(weights, name, precision_); };
  if (weights.has(prefix + "pooler.dense.weight")) pooler_ = linear(prefix + "pooler.dense");
  switch (head) {
    case Head::kNone: return;
    case Head::kMaskedLm:
    case Head::kPreTraining:  // the engine computes only its language model
    case Head::kCausalLm: {
      if (spec.transform != Transform::kNone) dense_ = linear("cls.predictions.transform.dense");
      if (spec.transform == Transform::kFull || spec.transform == Transform::kTwoDense)
        activation_ = spec.transform_activation.value_or(config.hidden_act);
      if (spec.transform == Transform::kTwoDense) second_ = linear("cls.predictions.transform.second");
      if (spec.transform == Transform::kFull) {
        norm_ = read_norm(weights, "cls.predictions.transform.LayerNorm", config, config.embedding_size);
      }
      const std::string decoder = config.family == Family::kDecoder ? "lm_head" : "cls.predictions.decoder";
      const bool own_weight = weights.has(decoder + ".weight"), own_bias = weights.has(decoder + ".bias");
      const std::string weight = own_weight ? decoder + ".weight" : prefix + "embeddings.word_embeddings.weight";
      last_ = Linear(precision, config.embedding_size, config.vocab_size, weights.floats(weight).get(),
                     read_bias(weights, own_bias ? decoder : "cls.predictions"));
      return;
    }
    case Head::kSequenceClassification:
    case Head::kMultipleChoice:
    case Head::kTokenClassification:
    case Head::kQuestionAnswering: last_ = linear(last_layer(config, head));
  }
  if (rf::before_last(config, head) != HeadSpec::Before::kDense) return;
  dense_ = linear("classifier.dense");
  activation_ = spec.activation.value_or(config.hidden_act);
  if (spec.dense_norm) norm_ = read_norm(weights, "classifier.norm", config, config.hidden_size);
}

HeadLayers::HeadLayers(Linear last, Precision precision)
    : head_(Head::kCausalLm), precision_(of_small_layers(precision)), hidden_(last.in()), last_(std::move(last)) {}

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

void HeadLayers::before_last(int64_t rows, const void* x, int64_t x_stride, std::vector<std::byte>& y) const {
  const rf_dtype dtype = activation_dtype(precision_);
  const Linear& first = dense_.empty() ? pooler_ : dense_;
  y.resize(static_cast<size_t>(rows * first.out() * bytes_of(dtype)));
  first(rows, x, x_stride, y.data(), dense_.empty() ? Activation::kTanh : activation_);
  if (!second_.empty()) {
    const std::vector<std::byte> wide = std::move(y);
    y.assign(static_cast<size_t>(rows * second_.out() * bytes_of(dtype)), {});
    second_(rows, wide.data(), first.out(), y.data(), activation_);
  }
  if (norm_.columns > 0) norm_(dtype, rows, y.data(), nullptr, y.data());
}

void HeadLayers::operator()(int64_t rows, const void* x, int64_t x_stride, float* y, Memory& memory) const {
  const rf_dtype dtype = activation_dtype(precision_);
  const bool pools = has_pooler() && (head_ == Head::kSequenceClassification || head_ == Head::kMultipleChoice);
  if (pools || !dense_.empty()) {
    before_last(rows, x, x_stride, memory.before_last);
    x = memory.before_last.data();
    x_stride = last_.in();
  }
  if (dtype == RF_F32) return last_(rows, x, x_stride, y);
  memory.result.resize(static_cast<size_t>(rows * logits() * bytes_of(dtype)));
  last_(rows, x, x_stride, memory.result.data());
  to_floats(dtype, rows * logits(), memory.result.data(), y);
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
