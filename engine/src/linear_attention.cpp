// Linear attention (see the header).
#include "linear_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>

#include "layers.h"
#include "parallel_for.h"
#include "rf/attention_terms.h"
#include "rf/io/error.h"
#include "rf/model/computed_encoding.h"
#include "rf/rope.h"
#include "status.h"

namespace rf::engine {

namespace {

constexpr const char* kLinearAttentionWhere = "linear_attention";

constexpr float kLowest = -std::numeric_limits<float>::infinity();

void softmax_of(const float* x, int64_t count, float* y) {
  const float largest = *std::max_element(x, x + count);
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += y[i] = std::exp(x[i] - largest);
  for (int64_t i = 0; i < count; ++i) y[i] /= sum;
}

// x / |x|, and a 1 behind it. A vector of zeros stays one.
void cosine(const float* x, int64_t count, float* y) {
  constexpr float kMinNorm = 1e-12f;
  float sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += x[i] * x[i];
  const float norm = std::max(std::sqrt(sum), kMinNorm);
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] / norm;
  y[count] = 1;
}

bool is_left(const uint8_t* mask, int64_t t) { return mask == nullptr || mask[t] != 0; }

// Rows of one head: row t begins at data + t * stride.
template <class T>
struct HeadVectors {
  T* data;
  int64_t stride;
  T* row(int64_t t) const { return data + t * stride; }
};

struct MapSizes {
  int64_t tokens, head_dim, features;
};

// Causal shen and favor: features of a key are divided by the exponential of the largest exponent up to it.
struct RunningMaximum {
  float earlier;               // of keys that came before
  HeadVectors<float> of_keys;  // rows of one number, written: the largest exponent up to each key
};

// The feature maps of linear attention that its kernel does not compute, in float32. nn/src/linear_attention_paths.h
// has their formulas and sources; the functions there have gradients.
struct FeatureMapper {
  const LinearAttentionConfig& config;
  MapSizes sizes;
  double scale;             // of scores, for favor and relu
  const float* projection;  // [head_dim, features], for favor and relu

  void map_queries(HeadVectors<const float> q, HeadVectors<float> f) const {
    const auto eps = static_cast<float>(config.feature_eps);
    const float root = std::sqrt(static_cast<float>(sizes.features));
    for (int64_t t = 0; t < sizes.tokens; ++t) {
      const float* x = q.row(t);
      float* y = f.row(t);
      switch (config.feature_map) {
        case FeatureMap::kElu: break;  // inside the kernel
        case FeatureMap::kShenOriginal:
        case FeatureMap::kShen: softmax_of(x, sizes.head_dim, y); break;
        case FeatureMap::kFavor: {
          const float half_norm = project(x, y), largest = *std::max_element(y, y + sizes.features);
          for (int64_t j = 0; j < sizes.features; ++j) y[j] = (std::exp(y[j] - half_norm - largest) + eps) / root;
          break;
        }
        case FeatureMap::kRelu:
          project(x, y);
          for (int64_t j = 0; j < sizes.features; ++j) y[j] = std::max(y[j], 0.0f) + eps;
          break;
        case FeatureMap::kCosine: cosine(x, sizes.head_dim, y); break;
      }
    }
  }

  // mask: 0 for keys that are left out, whose features are undefined; nullptr: no mask. running: read by shen and
  // favor; nullptr: they use the maximum over all keys.
  void map_keys(HeadVectors<const float> k, const uint8_t* mask, HeadVectors<float> g,
                const RunningMaximum* running) const {
    switch (config.feature_map) {
      case FeatureMap::kShenOriginal: return map_softmax_of_keys(k, mask, g);
      case FeatureMap::kShen:
      case FeatureMap::kFavor: return map_exponentials(k, mask, g, running);
      case FeatureMap::kElu:
      case FeatureMap::kRelu:
      case FeatureMap::kCosine: return map_queries(k, g);  // f = g
    }
  }

 private:
  // w_j . x' for all features; the result is |x'|^2 / 2.
  float project(const float* x, float* products) const {
    const auto root = static_cast<float>(std::sqrt(scale));
    std::fill_n(products, sizes.features, 0.0f);
    float half_norm = 0;
    for (int64_t d = 0; d < sizes.head_dim; ++d) {
      const float value = x[d] * root;
      half_norm += value * value / 2;
      const float* row = projection + d * sizes.features;
      for (int64_t j = 0; j < sizes.features; ++j) products[j] += value * row[j];
    }
    return half_norm;
  }

  // y: the exponents of a key's features; the result is their maximum, for favor without the norm.
  float exponents(const float* x, float* y) const {
    const bool favor = config.feature_map == FeatureMap::kFavor;
    float half_norm = 0;
    if (favor) {
      half_norm = project(x, y);
    } else {
      std::copy_n(x, sizes.head_dim, y);
    }
    const float largest = *std::max_element(y, y + sizes.features);
    for (int64_t j = 0; j < sizes.features; ++j) y[j] -= half_norm;
    return largest;
  }

  void map_exponentials(HeadVectors<const float> k, const uint8_t* mask, HeadVectors<float> g,
                        const RunningMaximum* running) const {
    float largest = running == nullptr ? kLowest : running->earlier;
    for (int64_t t = 0; t < sizes.tokens; ++t) {
      if (is_left(mask, t)) largest = std::max(largest, exponents(k.row(t), g.row(t)));
      if (running != nullptr) *running->of_keys.row(t) = largest;
    }
    const bool favor = config.feature_map == FeatureMap::kFavor;
    const auto eps = static_cast<float>(config.feature_eps);
    const float root = std::sqrt(static_cast<float>(sizes.features));
    for (int64_t t = 0; t < sizes.tokens; ++t) {
      if (!is_left(mask, t)) continue;
      float* y = g.row(t);
      const float maximum = running == nullptr ? largest : *running->of_keys.row(t);
      for (int64_t j = 0; j < sizes.features; ++j) {
        const float exponential = std::exp(y[j] - maximum);
        y[j] = favor ? (exponential + eps) / root : exponential;
      }
    }
  }

  void map_softmax_of_keys(HeadVectors<const float> k, const uint8_t* mask, HeadVectors<float> g) const {
    for (int64_t d = 0; d < sizes.head_dim; ++d) {
      float largest = kLowest, sum = 0;
      for (int64_t t = 0; t < sizes.tokens; ++t) {
        if (is_left(mask, t)) largest = std::max(largest, k.row(t)[d]);
      }
      for (int64_t t = 0; t < sizes.tokens; ++t) {
        if (is_left(mask, t)) sum += g.row(t)[d] = std::exp(k.row(t)[d] - largest);
      }
      for (int64_t t = 0; t < sizes.tokens; ++t) {
        if (is_left(mask, t)) g.row(t)[d] /= sum;
      }
    }
  }
};

void check_terms(const rf_attention_args& terms) {
  const auto refuse = [](bool is_set, const char* name) {
    if (is_set) {
      fail(kLinearAttentionWhere, "terms must be rotations, since linear attention has no pairwise terms, got {}",
           name);
    }
  };
#define RF_REFUSE_TABLE(name, ...) refuse(terms.name.rows != nullptr, #name);
#define RF_REFUSE_NUMBERS(name, ...) refuse(terms.name != nullptr, #name);
#define RF_REFUSE_PAIR(name, ...) refuse(terms.name != nullptr, #name);
#define RF_REFUSE_SCORES(name, ...) refuse(terms.name.numbers != nullptr, #name);
  RF_ATTENTION_TERMS(RF_NO_TERM, RF_REFUSE_TABLE, RF_REFUSE_NUMBERS, RF_REFUSE_PAIR, RF_REFUSE_SCORES)
#undef RF_REFUSE_TABLE
#undef RF_REFUSE_NUMBERS
#undef RF_REFUSE_PAIR
#undef RF_REFUSE_SCORES
  if (terms.value.pairs > 0) fail(kLinearAttentionWhere, "values must not be rotated, got {}", "a rotation");
}

// [m, D] to [D, m], so that the products with one element of a vector are neighbours.
std::vector<float> read_projection(const Weights& weights, int64_t layer, int64_t features, int64_t head_dim) {
  const std::string name = fmt::format("{}{}.projection", kLinearAttentionPrefix, layer);
  const std::vector<int64_t>& shape = weights.shape(name);
  if (shape != std::vector<int64_t>{features, head_dim}) {
    fail(kLinearAttentionWhere, "{} must be [{}, {}], got {} dimensions of [{}]", name, features, head_dim,
         shape.size(), fmt::join(shape, ", "));
  }
  const TensorFloats rows = weights.floats(name);
  std::vector<float> columns(static_cast<size_t>(features * head_dim));
  for (int64_t j = 0; j < features; ++j) {
    for (int64_t d = 0; d < head_dim; ++d) columns[d * features + j] = rows.get()[j * head_dim + d];
  }
  return columns;
}

// [tokens, heads, head_dim] of float32.
void copy_rows(const rf_attention_args& call, const void* from, std::vector<float>& to) {
  const int64_t columns = call.heads * call.head_dim, tokens = call.queries;
  to.resize(static_cast<size_t>(tokens * columns));
  parallel_for(tokens, tokens > 64, [&](int64_t t) {
    const auto* row = static_cast<const char*>(from) + t * call.q_stride_t * bytes_of(call.dtype);
    to_floats(call.dtype, columns, row, to.data() + t * columns);
  });
}

void rotate(const rf_attention_args& call, const rf_attention_rotation& rotation, float* x) {
  rotate_rows(RF_F32, call, rotation, call.queries, call.heads, call.heads * call.head_dim, x);
}

const void* from_row(rf_dtype dtype, const void* rows, int64_t elements) {
  return static_cast<const char*>(rows) + elements * bytes_of(dtype);
}

}  // namespace

LinearAttention::LinearAttention(const ModelConfig& config, const Weights& weights, const Position& position)
    : config_(parse_linear_attention(config.attention)),
      layers_(config.num_hidden_layers),
      heads_(config.num_attention_heads),
      head_dim_(config.head_dim()) {
  check_no_log_n(config);
  const FeatureMap map = config_.feature_map;
  if (config.is_decoder && map == FeatureMap::kShenOriginal)
    fail(kLinearAttentionWhere, "feature_map must not be shen_original in causal attention, got {}", "shen_original");
  has_running_maximum_ = config.is_decoder && (map == FeatureMap::kShen || map == FeatureMap::kFavor);
  rf_attention_args terms = {};
  position.set_terms(0, {}, terms);
  check_terms(terms);
  if (!config_.draws()) return;
  for (int64_t layer = 0; layer < layers_; ++layer)
    projections_.push_back(read_projection(weights, layer, features(), head_dim_));
}

int64_t LinearAttention::features() const {
  if (config_.draws()) return num_features(config_, head_dim_);
  return config_.feature_map == FeatureMap::kCosine ? head_dim_ + 1 : head_dim_;
}

LinearStates::Shape LinearAttention::states_shape(int64_t sequences, int64_t capacity) const {
  return {.layers = layers_, .heads = heads_, .sums = sums(), .sequences = sequences, .capacity = capacity};
}

rf_linear_attention_args LinearAttention::prepare(const rf_attention_args& call, FeatureMemory& memory) const {
  const bool rotates_before = config_.rope_site == RopeSite::kBeforeMap && call.query.cos != nullptr;
  const bool maps_inside = config_.feature_map == FeatureMap::kElu;
  rf_linear_attention_args args = {};
  args.struct_size = sizeof args;
  args.dtype = call.dtype;
  args.layout = call.layout;
  args.direction = call.window == 0 ? RF_LINEAR_BIDIRECTIONAL : RF_LINEAR_CAUSAL;
  args.denominator = config_.rotate_denominator ? RF_DENOMINATOR_ROTATED : RF_DENOMINATOR_PLAIN;
  args.feature_map = maps_inside ? RF_FEATURES_ELU_PLUS_ONE : RF_FEATURES_GIVEN;
  args.batch = 1;
  args.queries = args.keys = call.queries;
  args.heads = args.key_heads = heads_;
  args.features = features();
  args.value_dim = head_dim_;
  args.eps = config_.eps;
  args.q = call.q, args.k = call.k, args.v = call.v, args.out = call.out;
  args.q_stride_t = args.k_stride_t = args.v_stride_t = call.q_stride_t;
  args.out_stride_t = call.out_stride_t;
  args.q_stride_h = args.k_stride_h = args.v_stride_h = args.out_stride_h = head_dim_;
  if (rotates_before || !maps_inside) convert(call, memory, args);
  if (rotates_before) {
    rotate(call, call.query, memory.q.data());
    rotate(call, call.key, memory.k.data());
  }
  if (!maps_inside) place_features(call.queries, memory, args);
  if (config_.rope_site == RopeSite::kAfterMap) {
    args.query = call.query;
    args.key = call.key;
  }
  if (call.mask != nullptr) {
    args.key_mask = call.mask;
    args.key_mask_stride_s = 1;
  }
  return args;
}

void LinearAttention::convert(const rf_attention_args& call, FeatureMemory& memory,
                              rf_linear_attention_args& args) const {
  args.dtype = RF_F32;
  copy_rows(call, call.q, memory.q);
  copy_rows(call, call.k, memory.k);
  args.q = memory.q.data(), args.k = memory.k.data();
  args.q_stride_t = args.k_stride_t = heads_ * head_dim_;
  if (call.dtype == RF_F32) return;
  copy_rows(call, call.v, memory.v);
  memory.out.resize(memory.v.size());
  args.v = memory.v.data(), args.out = memory.out.data();
  args.v_stride_t = args.out_stride_t = heads_ * head_dim_;
}

void LinearAttention::place_features(int64_t tokens, FeatureMemory& memory, rf_linear_attention_args& args) const {
  const int64_t width = heads_ * args.features;
  memory.query_features.resize(static_cast<size_t>(tokens * width));
  memory.key_features.resize(memory.query_features.size());
  if (has_running_maximum_) {
    memory.maxima.resize(static_cast<size_t>(tokens * heads_));
    args.key_exponents = memory.maxima.data();
  }
  args.q = memory.query_features.data(), args.k = memory.key_features.data();
  args.q_stride_t = args.k_stride_t = width;
  args.q_stride_h = args.k_stride_h = args.features;
}

void LinearAttention::map(int64_t layer, const rf_attention_args& call, int64_t sequence, int64_t head,
                          double earlier_maximum, FeatureMemory& memory) const {
  const int64_t first = call.cu_seqlens_q[sequence], tokens = call.cu_seqlens_q[sequence + 1] - first;
  const int64_t columns = heads_ * head_dim_, width = heads_ * features();
  const int64_t from = first * columns + head * head_dim_, to = first * width + head * features();
  const float* projection = config_.draws() ? projections_[static_cast<size_t>(layer)].data() : nullptr;
  const FeatureMapper mapper{config_, {tokens, head_dim_, features()}, call.scale, projection};
  mapper.map_queries({memory.q.data() + from, columns}, {memory.query_features.data() + to, width});
  RunningMaximum running = {};
  if (has_running_maximum_)
    running = {static_cast<float>(earlier_maximum), {memory.maxima.data() + first * heads_ + head, heads_}};
  mapper.map_keys({memory.k.data() + from, columns}, call.mask == nullptr ? nullptr : call.mask + first,
                  {memory.key_features.data() + to, width}, has_running_maximum_ ? &running : nullptr);
}

void LinearAttention::extend(const rf_linear_attention_args& all, const rf_attention_args& call, int64_t sequence,
                             const LinearState& state) const {
  const int64_t first = call.cu_seqlens_q[sequence];
  rf_linear_attention_args args = all;
  args.queries = args.keys = call.cu_seqlens_q[sequence + 1] - first;
  args.q = from_row(all.dtype, all.q, first * all.q_stride_t);
  args.k = from_row(all.dtype, all.k, first * all.k_stride_t);
  args.v = from_row(all.dtype, all.v, first * all.v_stride_t);
  args.out = static_cast<char*>(all.out) + first * all.out_stride_t * bytes_of(all.dtype);
  args.query = rotation_from(all.query, first);
  args.key = rotation_from(all.key, first);
  if (all.key_mask != nullptr) args.key_mask = all.key_mask + first;
  args.state = state.sums;
  if (has_running_maximum_) {
    args.key_exponents = static_cast<const float*>(all.key_exponents) + first * heads_;
    args.state_exponents = state.maximum;
  }
  check_status(rf_linear_attention_forward(&args));
}

void LinearAttention::operator()(int64_t layer, const rf_attention_args& call, FeatureMemory& memory,
                                 const GrowingSequences* growing) const {
  rf_linear_attention_args all = prepare(call, memory);
  const auto state_of = [&](int64_t i, int64_t head) {
    if (growing == nullptr) return LinearState{};
    return growing->states.of(layer, growing->sequences[static_cast<size_t>(i)], head);
  };
  if (all.feature_map == RF_FEATURES_GIVEN) {
    const int64_t tasks = call.sequences * heads_;
    parallel_for(tasks, tasks > 1, [&](int64_t task) {
      const int64_t i = task / heads_, head = task % heads_;
      const double* earlier = state_of(i, head).maximum;
      map(layer, call, i, head, earlier == nullptr ? -std::numeric_limits<double>::infinity() : *earlier, memory);
    });
  }
  if (growing == nullptr) {
    all.cu_seqlens_q = all.cu_seqlens_k = call.cu_seqlens_q;
    all.sequences = call.sequences;
    check_status(rf_linear_attention_forward(&all));
  } else {
    std::exception_ptr error;
    parallel_for(call.sequences, call.sequences > 1, [&](int64_t i) {
      try {
        extend(all, call, i, state_of(i, 0));
      } catch (...) {
#pragma omp critical
        error = std::current_exception();
      }
    });
    if (error != nullptr) std::rethrow_exception(error);
  }
  if (all.out != call.out) from_floats(call.dtype, call.queries * call.out_stride_t, memory.out.data(), call.out);
}

}  // namespace rf::engine
