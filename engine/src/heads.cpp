// Heads (see the header).
#include "heads.h"

#include <cstring>

#include "read_layers.h"
#include "rf/io/error.h"

namespace rf::engine {

namespace {

// Small layers of float32 weights in int8 would lose more than they gain.
Precision of_small_layers(Precision precision) {
  return precision == Precision::kInt8 ? Precision::kFloat32 : precision;
}

}  // namespace

HeadLayers::HeadLayers(const ModelConfig& config, Head head, const Weights& weights, const std::string& prefix,
                       Precision precision)
    : head_(head), precision_(of_small_layers(precision)), hidden_(config.hidden_size) {
  activation_ = config.hidden_act;
  pooler_is_linear_ = config.prefix_lm;
  const auto linear = [&](const std::string& name) { return read_linear(weights, name, precision_); };
  if (weights.has(prefix + "pooler.dense.weight")) pooler_ = linear(prefix + "pooler.dense");
  switch (head) {
    case Head::kNone: return;
    case Head::kMaskedLm:
    case Head::kPreTraining:  // the engine computes only its language model
    case Head::kCausalLm: {
      const bool simple = config.family == Family::kRoFormerV2;
      if (weights.has("cls.predictions.transform.dense.weight")) dense_ = linear("cls.predictions.transform.dense");
      if (simple) activation_.reset();
      if (!simple) norm_ = read_norm(weights, "cls.predictions.transform.LayerNorm", config, config.embedding_size);
      const std::string decoder = "cls.predictions.decoder";
      const bool own_weight = weights.has(decoder + ".weight"), own_bias = weights.has(decoder + ".bias");
      const std::string weight = own_weight ? decoder + ".weight" : prefix + "embeddings.word_embeddings.weight";
      last_ = Linear(precision, config.embedding_size, config.vocab_size, weights.floats(weight).get(),
                     read_bias(weights, own_bias ? decoder : "cls.predictions"));
      return;
    }
    case Head::kSequenceClassification:
      if (config.family != Family::kBert) {
        dense_ = linear("classifier.dense");
        last_ = linear("classifier.out_proj");
        return;
      }
      [[fallthrough]];
    case Head::kMultipleChoice:
    case Head::kTokenClassification: last_ = linear("classifier"); return;
    case Head::kQuestionAnswering: last_ = linear("qa_outputs"); return;
  }
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
  void* const y_typed = memory.result.data();
  pooler_is_linear_ ? pooler_(rows, x, x_stride, y_typed) : pooler_(rows, x, x_stride, y_typed, Activation::kTanh);
  to_floats(dtype, rows * hidden_, memory.result.data(), y);
}

void HeadLayers::before_last(int64_t rows, const void* x, int64_t x_stride, std::vector<std::byte>& y) const {
  const rf_dtype dtype = activation_dtype(precision_);
  const Linear& first = dense_.empty() ? pooler_ : dense_;
  y.resize(static_cast<size_t>(rows * first.out() * bytes_of(dtype)));
  const std::optional<Activation> activation = dense_.empty() ? Activation::kTanh : activation_;
  activation ? first(rows, x, x_stride, y.data(), *activation) : first(rows, x, x_stride, y.data());
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

}  // namespace rf::engine
