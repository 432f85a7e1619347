// Vectors added to the embeddings, and the rows that are kept (position_parts.h).
#include <algorithm>
#include <mutex>
#include <numeric>
#include <utility>

#include "position_parts.h"
#include "rf/io/error.h"

namespace rf::engine {

namespace {

constexpr int64_t kMaxCachedBytes = int64_t{64} << 20;
constexpr int64_t kFirstRows = 512;

class LearnedInput : public Position {
 public:
  LearnedInput(MappedRows table, int64_t width) : table_(std::move(table)) {
    if (table_.width() != width) {
      fail("position", "position vectors must have {} elements, got {}", width, table_.width());
    }
  }

  void check(const Sequences& sequences) const override {
    for (int64_t t = 0; t < sequences.tokens; ++t) {
      if (sequences.positions[t] >= table_.rows()) {
        fail("position", "positions must be below the {} of the trained table, got {}", table_.rows(),
             sequences.positions[t]);
      }
    }
  }

  void add_input(const Sequences& sequences, float* x, int64_t width) const override {
    for (int64_t t = 0; t < sequences.tokens; ++t) table_.add_row(sequences.positions[t], x + t * width);
  }

 private:
  MappedRows table_;
};

class SinusoidalInput : public Position {
 public:
  SinusoidalInput(SinusoidLayout layout, int64_t width)
      : rows_(width, [=](const int64_t* positions, int64_t count, float* rows) {
          sinusoid(positions, count, width, layout, rows);
        }) {}

  void add_input(const Sequences& sequences, float* x, int64_t width) const override {
    rows_.for_rows(sequences, [&](int64_t t, const float* row) {
      for (int64_t i = 0; i < width; ++i) x[t * width + i] += row[i];
    });
  }

 private:
  mutable RowCache rows_;
};

}  // namespace

RowCache::RowCache(int64_t width, Compute compute)
    : width_(width),
      most_(kMaxCachedBytes / (width * static_cast<int64_t>(sizeof(float)))),
      compute_(std::move(compute)) {}

int64_t RowCache::needed_rows(const Sequences& sequences) {
  const int64_t* end = sequences.positions + sequences.tokens;
  return sequences.tokens == 0 ? 0 : *std::max_element(sequences.positions, end) + 1;
}

void RowCache::grow_to(int64_t count) {
  {
    const std::shared_lock lock(mutex_);
    if (count_ >= count) return;
  }
  const std::unique_lock lock(mutex_);
  if (count_ >= count) return;
  const int64_t target = std::min(most_, std::max({count, 2 * count_, kFirstRows}));
  std::vector<int64_t> positions(static_cast<size_t>(target - count_));
  std::iota(positions.begin(), positions.end(), count_);
  rows_.resize(static_cast<size_t>(target * width_));
  compute_(positions.data(), std::ssize(positions), rows_.data() + count_ * width_);
  count_ = target;
}

std::unique_ptr<Position> make_learned(MappedRows table, int64_t width) {
  return std::make_unique<LearnedInput>(std::move(table), width);
}

std::unique_ptr<Position> make_sinusoidal(SinusoidLayout layout, int64_t width) {
  return std::make_unique<SinusoidalInput>(layout, width);
}

}  // namespace rf::engine
