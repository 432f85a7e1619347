// The layers of an encoder on rows of activations, by the kernels of core.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "rf/attention.h"
#include "rf/engine/precision.h"
#include "rf/linear.h"
#include "rf/model/config.h"
#include "rf/rows.h"

namespace rf::engine {

// The type of activations.
inline rf_dtype activation_dtype(Precision precision) { return precision == Precision::kBfloat16 ? RF_BF16 : RF_F32; }
// Small layers of float32 weights in int8 would lose more than they gain.
inline Precision of_small_layers(Precision precision) {
  return precision == Precision::kInt8 ? Precision::kFloat32 : precision;
}

struct DestroyPacked {
  void operator()(rf_linear_packed* packed) const { rf_linear_packed_destroy(packed); }
};

// Rows of a matrix in the blocks of a file, of one type from a run to the next.
struct FileRows {
  struct Run {
    rf_block_type type;
    int64_t rows;
  };
  std::vector<const void*> rows{};
  std::vector<Run> runs{};
};

// y = x W^T + b, with W packed.
class Linear {
 public:
  Linear() = default;
  // Keeps the weight as the file stores it; computes in float32.
  Linear(int64_t in, const FileRows& weight, std::vector<float> bias);
  // weight: [out, in]; bias: [out], or empty. largest_inputs: the largest magnitudes of x, [in], or empty; int8 uses
  // them to scale down inputs that are always larger than the rest.
  Linear(Precision precision, int64_t in, int64_t out, const float* weight, std::vector<float> bias,
         const std::vector<float>& largest_inputs = {});

  bool empty() const { return parts_.empty(); }
  // Rows of the weight must be in the order of rf/linear.h for gates of this activation; y has half the columns.
  void set_gate(Activation gate);
  bool is_gated() const { return gate_ != 0; }
  int64_t in() const { return in_; }
  int64_t out() const { return out_; }
  // x: rows of `in` elements with stride x_stride; y: [rows, out] of the same type, after the activation.
  void operator()(int64_t rows, const void* x, int64_t x_stride, void* y,
                  std::optional<Activation> activation = std::nullopt) const;

 private:
  rf_dtype dtype_ = RF_F32;
  int64_t in_ = 0, out_ = 0;
  rf_gelu_form gate_ = {};
  struct Part {
    int64_t out;
    std::unique_ptr<rf_linear_packed, DestroyPacked> packed;
  };
  std::vector<Part> parts_;  // one below the other; of a gated product, one
  std::vector<float> bias_;
};

// y = norm(x + residual), and sum = x + residual; y or sum may be residual, and y x without one. residual, sum: nullptr
// for none; an empty bias is left out.
struct Norm {
  NormKind kind = NormKind::kLayer;
  int64_t columns = 0;            // 0: no norm
  std::vector<float> gain, bias;  // each empty: none. gain may be [n, columns], of n rows in turn without residual, sum
  double eps = 0;
  void operator()(rf_dtype dtype, int64_t rows, const void* x, const void* residual, void* y,
                  void* sum = nullptr) const;
};

// A layer: its norms are after attention and the feed-forward network, or before them, and `up` may have a gate before
// it, [gate; up].
struct Block {
  Norm attention_norm, feed_forward_norm;
  Norm query_norm, key_norm;  // of each head, or of all together, before the rotation; without columns: none
  Norm attention_post_norm, feed_forward_post_norm;  // of the results of both; without columns: none
  Linear qkv, attention_output, up, down;            // up and down are empty in a layer with experts
  Norm cross_norm = {};
  Linear cross_query = {}, cross_key_value = {}, cross_output = {};  // empty without cross-attention
  std::vector<float> sinks = {};                                     // of each head; empty: none
  Norm value_norm = {};                                              // of each head; without columns: none
  // Added for the layer's separate input: norm(down(activation(gate(x)) * input_norm(input(embeddings)))).
  Linear layer_gate = {}, layer_input = {}, layer_down = {};  // empty: none
  Norm layer_input_norm = {}, layer_norm = {};
  double scale = 1;  // of the layer's result
};

// The largest magnitudes of a layer's normalised vectors, [hidden_size], at the inputs of its attention, of its
// cross-attention and of its feed-forward network.
struct LayerInputs {
  std::vector<float> attention, cross, feed_forward;
};

// x = activation(x) * factor in place; rows of x and factor have `columns` elements and stride `stride`. factor:
// nullptr for 1; relu, its square and tanh then need a stride of `columns`.
void activate(Activation activation, rf_dtype dtype, int64_t rows, int64_t columns, void* x, int64_t stride,
              const void* factor = nullptr);

// Whether products can apply gates of `columns` columns as they write them; order_gates() orders rows of width
// elements, [gate; up], for it.
bool has_fused_gate(Precision precision, Activation activation, int64_t columns);
template <class T>
void order_gates(int64_t columns, int64_t width, const T* from, T* to);

// gate = activation(gate) * up in place, in rows [gate, up] of 2 columns elements.
void multiply_by_gate(Activation activation, rf_dtype dtype, int64_t rows, int64_t columns, void* x);

// x = cap tanh(factor x / cap), or factor x for cap 0, in place.
void scale_and_cap(rf_dtype dtype, int64_t count, double factor, double cap, void* x);

// y = y + x
void add(rf_dtype dtype, int64_t count, const void* x, void* y);

// Rotates x [tokens, heads, head_dim] in place, by one row of the rotation for each token. stride: between tokens of x.
void rotate_rows(rf_dtype dtype, const rf_attention_args& terms, const rf_attention_rotation& rotation, int64_t tokens,
                 int64_t heads, int64_t stride, void* x);

// largest[t] = max(largest[t], |x[r][t]|) over all rows.
void note_largest(int64_t rows, const float* x, std::vector<float>& largest);

// Conversions of activations.
void from_floats(rf_dtype dtype, int64_t count, const float* from, void* to);
void to_floats(rf_dtype dtype, int64_t count, const void* from, float* to);
inline int64_t bytes_of(rf_dtype dtype) { return dtype == RF_F32 ? 4 : 2; }

}  // namespace rf::engine
