// One call of linear attention as a test writes it: a shape and options with defaults, arrays drawn from a fixed seed,
// results as Elements.
#pragma once

#include <limits>
#include <random>

#include "core/rope_case.h"
#include "rf/linear_attention.h"

namespace rf::tests {

struct LinearShape {
  int64_t batch = 2, queries = 3, keys = 3, heads = 4, key_heads = 2, features = 6, value_dim = 5;
};

struct LinearOptions {
  rf_linear_direction direction = RF_LINEAR_CAUSAL;
  rf_linear_denominator denominator = RF_DENOMINATOR_PLAIN;
  rf_feature_map map = RF_FEATURES_ELU_PLUS_ONE;
  rf_rope_layout layout = RF_ROPE_HALVES;
  int64_t pairs = 2;  // 0: no rotation
  bool shared_rotation = false;
  bool masked = true;
  double eps = 0;
  int64_t gap = 0;        // elements between heads that belong to nobody
  double rise = 0;        // of the keys' exponents, now and then; 0: there are none
  int64_t sequences = 0;  // packed in each side's tokens; 0: none
};

// Rows [B, tokens, heads, width] with a gap behind each.
struct LinearRows {
  Elements elements;
  int64_t stride_b, stride_t, stride_h, width;

  LinearRows(rf_dtype dtype, int64_t batch, int64_t tokens, int64_t heads, int64_t row, int64_t gap)
      : elements(dtype, batch * tokens * heads * (row + gap)),
        stride_b(tokens * heads * (row + gap)),
        stride_t(heads * (row + gap)),
        stride_h(row + gap),
        width(row) {}
  enum class Sign { kBoth, kPositive };
  void draw(std::mt19937_64& generator, Sign sign) {
    std::normal_distribution<double> normal;
    const bool gaps = stride_h > width;
    for (int64_t i = 0; i < elements.count(); ++i) {
      const double drawn = normal(generator), value = sign == Sign::kPositive ? 0.1 + std::abs(drawn) : drawn;
      elements.set(i, gaps && i % stride_h >= width ? std::numeric_limits<double>::quiet_NaN() : value);
    }
  }
  char* data() { return elements.bytes.data(); }
};

class LinearCase {
 public:
  LinearCase(rf_dtype dtype, const LinearShape& shape, const LinearOptions& options)
      : q(dtype, shape.batch, shape.queries, shape.heads, shape.features, options.gap),
        k(dtype, shape.batch, shape.keys, shape.key_heads, shape.features, options.gap),
        v(dtype, shape.batch, shape.keys, shape.key_heads, shape.value_dim, options.gap),
        out(dtype, shape.batch, shape.queries, shape.heads, shape.value_dim, options.gap),
        y(dtype, shape.batch, shape.queries, shape.heads, shape.value_dim, options.gap),
        dq(dtype, shape.batch * shape.queries * shape.heads * shape.features),
        dk(dtype, shape.batch * shape.keys * shape.key_heads * shape.features),
        dv(dtype, shape.batch * shape.keys * shape.key_heads * shape.value_dim),
        denominators(static_cast<size_t>(shape.batch * shape.queries * shape.heads)),
        mask(static_cast<size_t>(shape.batch * shape.keys), 1),
        cos_sin_{Elements(row_dtype(dtype), 0), Elements(row_dtype(dtype), 0), Elements(row_dtype(dtype), 0),
                 Elements(row_dtype(dtype), 0)} {
    // Features as they are given are those of some map: positive, or denominators would be near 0.
    const auto sign = options.map == RF_FEATURES_GIVEN ? LinearRows::Sign::kPositive : LinearRows::Sign::kBoth;
    for (LinearRows* rows : {&q, &k}) rows->draw(generator_, sign);
    for (LinearRows* rows : {&v, &y}) rows->draw(generator_, LinearRows::Sign::kBoth);
    args.struct_size = sizeof args;
    args.dtype = dtype;
    args.layout = options.layout;
    args.direction = options.direction, args.denominator = options.denominator, args.feature_map = options.map;
    args.batch = shape.batch, args.queries = shape.queries, args.keys = shape.keys;
    args.heads = shape.heads, args.key_heads = shape.key_heads;
    args.features = shape.features, args.value_dim = shape.value_dim;
    args.eps = options.eps;
    args.denominators = denominators.data();
    const int64_t rotations = options.shared_rotation ? 1 : shape.batch;
    if (options.pairs > 0) {
      args.query = rotation(cos_sin_[0], cos_sin_[1], rotations, shape.queries, options.pairs);
      args.key = rotation(cos_sin_[2], cos_sin_[3], rotations, shape.keys, options.pairs);
    }
    if (options.masked) {
      for (size_t i = 0; i < mask.size(); ++i) mask[i] = i % 5 != 2;
      args.key_mask = mask.data();
      args.key_mask_stride_b = shape.keys, args.key_mask_stride_s = 1;
    }
    if (options.rise > 0) {
      exponents_ = Elements(row_dtype(dtype), shape.batch * shape.keys * shape.key_heads);
      draw_exponents(shape, options.rise);
      args.key_exponents = exponents_.bytes.data();
    }
    if (options.sequences > 0) {
      pack(options.sequences);
      args.cu_seqlens_q = ends_q.data(), args.cu_seqlens_k = ends_k.data(), args.sequences = options.sequences;
    }
    args.q = q.data(), args.q_stride_b = q.stride_b, args.q_stride_t = q.stride_t, args.q_stride_h = q.stride_h;
    args.k = k.data(), args.k_stride_b = k.stride_b, args.k_stride_t = k.stride_t, args.k_stride_h = k.stride_h;
    args.v = v.data(), args.v_stride_b = v.stride_b, args.v_stride_t = v.stride_t, args.v_stride_h = v.stride_h;
    args.out = out.data();
    args.out_stride_b = out.stride_b, args.out_stride_t = out.stride_t, args.out_stride_h = out.stride_h;
    grads.struct_size = sizeof grads, grads.out = y.data();
    grads.out_stride_b = y.stride_b, grads.out_stride_t = y.stride_t, grads.out_stride_h = y.stride_h;
    grads.q = dq.bytes.data(), grads.k = dk.bytes.data(), grads.v = dv.bytes.data();
  }
  LinearCase(const LinearCase&) = delete;
  LinearCase& operator=(const LinearCase&) = delete;

  void forward() { ASSERT_EQ(rf_linear_attention_forward(&args), RF_OK) << rf_last_error(); }
  void backward() { ASSERT_EQ(rf_linear_attention_backward(&args, &grads), RF_OK) << rf_last_error(); }

  rf_linear_attention_args args{};
  rf_linear_attention_grads grads{};
  LinearRows q, k, v, out, y;
  Elements dq, dk, dv;
  std::vector<float> denominators;
  std::vector<uint8_t> mask;
  std::vector<int64_t> ends_q, ends_k;

 private:
  // Sequences of different lengths, one of them empty, and of another length for keys than for queries unless all are
  // alike.
  void pack(int64_t sequences) {
    for (int64_t i = 0; i <= sequences; ++i) {
      const int64_t part = i == 2 ? 1 : i;
      ends_q.push_back(part * part * args.queries / (sequences * sequences));
      ends_k.push_back(part * part * args.keys / (sequences * sequences));
    }
  }
  // Running maxima: of a head, the same for some keys, then higher; -infinity before the first.
  void draw_exponents(const LinearShape& shape, double rise) {
    std::uniform_real_distribution<double> drawn(0, 1);
    for (int64_t b = 0; b < shape.batch; ++b) {
      for (int64_t h = 0; h < shape.key_heads; ++h) {
        double exponent = h == 0 ? -std::numeric_limits<double>::infinity() : -rise;
        for (int64_t n = 0; n < shape.keys; ++n) {
          if (drawn(generator_) < 0.1) exponent = std::max(exponent, -3.0) + rise * drawn(generator_);
          exponents_.set((b * shape.keys + n) * shape.key_heads + h, exponent);
        }
      }
    }
  }

  static rf_dtype row_dtype(rf_dtype dtype) { return dtype == RF_F64 ? RF_F64 : RF_F32; }
  rf_attention_rotation rotation(Elements& cos, Elements& sin, int64_t batch, int64_t tokens, int64_t pairs) {
    cos = sin = Elements(cos.dtype, batch * tokens * pairs);
    for (int64_t i = 0; i < cos.count(); ++i) {
      // Small angles, so that rotated denominators stay away from 0, and a magnitude that is not 1.
      const double angle = std::uniform_real_distribution<double>(-0.6, 0.6)(generator_);
      cos.set(i, 1.1 * std::cos(angle));
      sin.set(i, 1.1 * std::sin(angle));
    }
    return {cos.bytes.data(), sin.bytes.data(), batch, pairs};
  }

  std::mt19937_64 generator_{314};
  Elements cos_sin_[4];
  Elements exponents_{RF_F32, 0};
};

}  // namespace rf::tests
