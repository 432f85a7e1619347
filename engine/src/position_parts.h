// The parts of a model's position: one per encoding, or one for the terms of all encodings.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

#include "position.h"
#include "rf/model/position_terms.h"
#include "rf/model/rotary_rows.h"
#include "rf/model/sinusoid.h"

namespace rf::engine {

// Rows by position, made when they are first needed and kept within 64 MiB. Thread-safe.
class RowCache {
 public:
  // Computes rows [count, width] of positions.
  using Compute = std::function<void(const int64_t* positions, int64_t count, float* rows)>;
  RowCache(int64_t width, Compute compute);

  // Calls use(t, row) for each token.
  template <class Use>
  void for_rows(const Sequences& sequences, const Use& use) {
    const int64_t rows = needed_rows(sequences);
    if (rows > most_) {
      std::vector<float> all(static_cast<size_t>(sequences.tokens * width_));
      compute_(sequences.positions, sequences.tokens, all.data());
      for (int64_t t = 0; t < sequences.tokens; ++t) use(t, all.data() + t * width_);
      return;
    }
    grow_to(rows);
    const std::shared_lock lock(mutex_);
    for (int64_t t = 0; t < sequences.tokens; ++t) use(t, rows_.data() + sequences.positions[t] * width_);
  }

 private:
  static int64_t needed_rows(const Sequences& sequences);
  void grow_to(int64_t count);

  int64_t width_, most_;
  Compute compute_;
  std::shared_mutex mutex_;
  int64_t count_ = 0;
  std::vector<float> rows_;
};

// A trained vector for each position, added to the input.
std::unique_ptr<Position> make_learned(MappedRows table, int64_t width);
// Sinusoids of the position, added to the input.
std::unique_ptr<Position> make_sinusoidal(SinusoidLayout layout, int64_t width);

std::unique_ptr<Position> make_rotary(RotaryRows rows);
// By the rows of a checkpoint's own table [rows, dim]: sines in the first half of a row, cosines in the second; pairs
// (2i, 2i + 1).
std::unique_ptr<Position> make_stored_rotation(std::vector<float> table, int64_t dim);

// Terms that are constants of the checkpoint. owner: keeps their values. model_dir: for messages.
std::unique_ptr<Position> make_constant_terms(const PositionTerms& terms, int64_t layers,
                                              std::shared_ptr<const void> owner, std::string model_dir);

}  // namespace rf::engine
