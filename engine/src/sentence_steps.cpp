// Steps on vectors (see the header).
#include "sentence_steps.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "rf/io/error.h"

namespace rf::engine {

namespace {

// Subtracts the centre, from standardized features if so stated (SparseAutoEncoder).
void center(const SentenceStep& step, int64_t columns, float* x) {
  constexpr double kEpsilon = 1e-5;
  const auto n = static_cast<double>(columns);
  double mean = 0, squares = 0;
  if (step.standardizes) {
    mean = std::accumulate(x, x + columns, 0.0) / n;
    for (int64_t c = 0; c < columns; ++c) squares += (x[c] - mean) * (x[c] - mean);
  }
  const double scale = step.standardizes ? 1 / (std::sqrt(squares / std::max(1.0, n - 1)) + kEpsilon) : 1;
  for (int64_t c = 0; c < columns; ++c) x[c] = static_cast<float>((x[c] - mean) * scale) - step.center[c];
}

std::vector<float> dense(const SentenceStep& step, int64_t rows, const std::vector<float>& x) {
  const int64_t in = step.dense.in(), out = step.dense.out();
  std::vector<float> y(static_cast<size_t>(rows * out));
  step.dense(rows, x.data(), in, y.data(), step.activation);
  std::vector<float> through;
  if (step.residual == SentenceStep::Residual::kProjected) {
    through.resize(y.size());
    step.residual_projection(rows, x.data(), in, through.data());
  }
  const std::vector<float>& added = through.empty() ? x : through;
  for (size_t i = 0; step.residual != SentenceStep::Residual::kNone && i < y.size(); ++i) y[i] += added[i];
  return y;
}

}  // namespace

void normalize(float* x, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * x[i];
  const double scale = 1 / std::max(std::sqrt(sum), 1e-12);
  for (int64_t i = 0; i < count; ++i) x[i] = static_cast<float>(x[i] * scale);
}

int64_t width_after(const std::vector<SentenceStep>& steps, int64_t width) {
  for (const SentenceStep& step : steps) {
    const int64_t norm = step.kind == SentenceStep::Kind::kLayerNorm ? step.norm.columns
                         : step.kind == SentenceStep::Kind::kCenter  ? std::ssize(step.center)
                                                                     : width;
    if (norm != width) fail<ArgumentError>("embed", "the norm of the model reads {} features, got {}", norm, width);
    if (step.kind != SentenceStep::Kind::kDense) continue;
    if (step.dense.in() != width) {
      fail<ArgumentError>(
          "embed", "the dense layer of the model reads {} features, got {} from the steps before it (--pooling?)",
          step.dense.in(), width);
    }
    width = step.dense.out();
  }
  return width;
}

int64_t apply(const std::vector<SentenceStep>& steps, int64_t rows, int64_t columns, std::vector<float>& x) {
  for (const SentenceStep& step : steps) {
    if (step.kind == SentenceStep::Kind::kDense) {
      x = dense(step, rows, x);
      columns = step.dense.out();
    } else {
      change(step, rows, columns, x.data());
    }
  }
  return columns;
}

void change(const SentenceStep& step, int64_t rows, int64_t columns, float* x) {
  if (step.kind == SentenceStep::Kind::kLayerNorm) return step.norm(RF_F32, rows, x, nullptr, x);
  for (int64_t i = 0; i < rows; ++i, x += columns) {
    step.kind == SentenceStep::Kind::kNormalize ? normalize(x, columns) : center(step, columns, x);
  }
}

}  // namespace rf::engine
