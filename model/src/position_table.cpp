// The sinusoid table of a checkpoint (spec R-ABS-04): [sin(m t_i) for all i, cos(m t_i) for all i], t_i =
// 10000^(-2i/dim). This is the table that transformers stores; the kernels compute a more accurate one.
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "rf/io/error.h"
#include "rf/model/weights.h"

namespace rf {

std::vector<float> position_table(int64_t rows, int64_t dim) {
  constexpr int64_t kMaxElements = int64_t{1} << 32;
  if (dim < 2 || dim % 2 != 0) fail("position_table", "dim must be even and at least 2, got {}", dim);
  if (rows < 0 || rows > kMaxElements / dim) {
    fail("position_table", "rows times dim must be at most 2^32, got {} rows of {}", rows, dim);
  }
  const int64_t half = dim / 2;
  std::vector<double> divisors(static_cast<size_t>(half));
  for (int64_t i = 0; i < half; ++i) {
    divisors[i] = std::pow(10000.0, 2.0 * static_cast<double>(i) / static_cast<double>(dim));
  }
  std::vector<float> table(static_cast<size_t>(rows * dim));
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(m) / divisors[i];
      table[m * dim + i] = static_cast<float>(std::sin(angle));
      table[m * dim + half + i] = static_cast<float>(std::cos(angle));
    }
  }
  return table;
}

std::optional<std::string> stored_table_warning(const std::string& model_dir, std::span<const double> stored,
                                                int64_t dim) {
  constexpr double kTolerance = 1e-6;
  const int64_t rows = std::ssize(stored) / dim;
  const std::vector<float> computed = position_table(rows, dim);
  double difference = 0;
  for (size_t i = 0; i < computed.size(); ++i) {
    difference = std::max(difference, std::abs(stored[i] - static_cast<double>(computed[i])));
  }
  if (difference <= kTolerance) return std::nullopt;
  return fmt::format(
      "[load_model] encoder.embed_positions.weight in {} differs from the computed table by {:.3g} (more than {:.0e}); "
      "the stored one is used, and limits sequences to its {} rows",
      model_dir, difference, kTolerance, rows);
}

}  // namespace rf
