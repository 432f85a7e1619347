// Rows dealt out to threads, and sums over rows whose bits do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/arena.h"
#include "common/parallel_tasks.h"

namespace rf::core {

// Below this many elements a call ends before a second thread has started.
inline constexpr int64_t kParallelRowElements = 16 * 1024;
// Sums over rows are taken in at most this many chunks, of at least this many rows.
inline constexpr int64_t kMaxRowChunks = 64;
inline constexpr int64_t kMinChunkRows = 16;
// Default number of rows per task of a thread.
inline constexpr int64_t kRowBlock = 8;

struct RowRange {
  int64_t first, count;
};

// A row of an array that may be absent.
template <class T>
T* row_of(void* data, int64_t stride, int64_t row) {
  return data == nullptr ? nullptr : static_cast<T*>(data) + row * stride;
}
template <class T>
const T* row_of(const void* data, int64_t stride, int64_t row) {
  return data == nullptr ? nullptr : static_cast<const T*>(data) + row * stride;
}

// run(index, rows, space) for every `block` rows; space has `bytes` bytes of the thread.
template <class Run>
void for_row_blocks(int64_t rows, int64_t columns, int64_t block, int64_t bytes, const Run& run) {
  const int64_t blocks = (rows + block - 1) / block;
  const bool parallel = blocks > 1 && rows >= kParallelRowElements / std::max<int64_t>(columns, 1);
  parallel_tasks<Schedule::kStatic>({blocks, parallel, bytes}, [&](int64_t i, void* space) {
    run(i, RowRange{i * block, std::min(block, rows - i * block)}, space);
  });
}

// The same in chunks: run(rows, space, sums) adds the rows of a chunk to zeroed sums [totals.size()][padded]. Then
// totals[k], [columns] or nullptr, are the sums over the chunks, in order.
template <class Run>
void sum_over_rows(int64_t rows, int64_t columns, int64_t bytes, const std::vector<float*>& totals, const Run& run) {
  const int64_t chunk = std::max(kMinChunkRows, (rows + kMaxRowChunks - 1) / kMaxRowChunks);
  const int64_t chunks = (rows + chunk - 1) / chunk;
  const int64_t width = padded(columns), stride = width * static_cast<int64_t>(totals.size());
  std::vector<float> sums(static_cast<size_t>(chunks * stride));
  for_row_blocks(rows, columns, chunk, bytes,
                 [&](int64_t index, RowRange range, void* space) { run(range, space, sums.data() + index * stride); });
  std::vector<double> total(static_cast<size_t>(columns));
  for (size_t k = 0; k < totals.size(); ++k) {
    if (totals[k] == nullptr) continue;
    std::fill(total.begin(), total.end(), 0.0);
    for (int64_t i = 0; i < chunks; ++i) {
      const float* part = sums.data() + i * stride + static_cast<int64_t>(k) * width;
      for (int64_t c = 0; c < columns; ++c) total[static_cast<size_t>(c)] += static_cast<double>(part[c]);
    }
    for (int64_t c = 0; c < columns; ++c) totals[k][c] = static_cast<float>(total[static_cast<size_t>(c)]);
  }
}

}  // namespace rf::core
