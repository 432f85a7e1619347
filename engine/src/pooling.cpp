// Pooling (see the header).
#include "pooling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "layers.h"

namespace rf::engine {

namespace {

struct Rows {
  rf_dtype dtype;
  const char* x;
  int64_t width;
  void read(int64_t row, float* to) const { to_floats(dtype, width, x + row * width * bytes_of(dtype), to); }
};

void pool_max(const Rows& rows, int64_t tokens, const uint8_t* attend, float* row, float* out) {
  std::fill_n(out, rows.width, -std::numeric_limits<float>::infinity());
  for (int64_t t = 0; t < tokens; ++t) {
    if (attend != nullptr && attend[t] == 0) continue;
    rows.read(t, row);
    for (int64_t c = 0; c < rows.width; ++c) out[c] = std::max(out[c], row[c]);
  }
}

// The number of tokens summed.
int64_t pool_sum(const Rows& rows, int64_t tokens, const uint8_t* attend, float* row, double* sum) {
  int64_t count = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    if (attend != nullptr && attend[t] == 0) continue;
    ++count;
    rows.read(t, row);
    for (int64_t c = 0; c < rows.width; ++c) sum[c] += row[c];
  }
  return count;
}

}  // namespace

void pool_sequence(Pooling pooling, rf_dtype dtype, const void* x, int64_t tokens, int64_t width, const uint8_t* attend,
                   float* out) {
  const Rows rows{dtype, static_cast<const char*>(x), width};
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
  const int64_t count = pool_sum(rows, tokens, attend, row.data(), sum.data());
  const auto n = static_cast<double>(std::max<int64_t>(1, count));
  const double divisor = pooling == Pooling::kMeanSqrtLen ? std::sqrt(n) : n;
  for (int64_t c = 0; c < width; ++c) out[c] = static_cast<float>(sum[static_cast<size_t>(c)] / divisor);
}

}  // namespace rf::engine
