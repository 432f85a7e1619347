// Attention of queries with listed keys in plain loops (see listed_attention.h).
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/reference.h"
#include "convert.h"

namespace rf::ref {

void listed_attention(const rf_listed_attention_args& x) {
  for (int64_t t = 0; t < x.queries; ++t) {
    const int64_t* rows = x.rows + x.begins[t];
    std::vector<double> weights(static_cast<size_t>(x.counts[t]));
    for (int64_t h = 0; h < x.heads; ++h) {
      const auto at = [&](int64_t row, int64_t stride, int64_t c) { return row * stride + h * x.head_dim + c; };
      double largest = -std::numeric_limits<double>::infinity(), sum = 0;
      for (size_t i = 0; i < weights.size(); ++i) {
        weights[i] = 0;
        for (int64_t c = 0; c < x.head_dim; ++c)
          weights[i] += load(x.dtype, x.q, at(t, x.q_stride, c)) * load(x.dtype, x.k, at(rows[i], x.kv_stride, c));
        weights[i] *= x.scale;
        largest = std::max(largest, weights[i]);
      }
      for (double& weight : weights) sum += weight = std::exp(weight - largest);
      for (int64_t c = 0; c < x.head_dim; ++c) {
        double out = 0;
        for (size_t i = 0; i < weights.size(); ++i)
          out += weights[i] / sum * load(x.dtype, x.v, at(rows[i], x.kv_stride, c));
        store(x.dtype, x.out, at(t, x.out_stride, c), out);
      }
    }
  }
}

}  // namespace rf::ref
