// Table rows of one operator, kept by position. Rows of integer positions are kept in pages of consecutive positions,
// other rows singly. A call holds its rows together with the table that owns them, so a table released meanwhile lives
// until the call ends.
//
// Memory: the tables of all operators together hold at most kMaxTableBytes. If new rows would exceed that, the least
// recently used table is released first; rows that still do not fit are computed for the call and not kept.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "rope/double_double.h"

namespace rf::core {

inline constexpr int64_t kMaxCachedRows = int64_t{1} << 24;
inline constexpr int64_t kMaxTableBytes = int64_t{256} << 20;

// The bytes of all tables of the process.
int64_t table_bytes();
// Releases all tables; a table still in use is freed after the last call that reads it.
void release_tables();
// Rows that were computed in this process so far, for tests.
int64_t rows_computed();

// The interface of a cache to the bound on bytes.
class TableOwner {
 public:
  virtual ~TableOwner() = default;
  virtual void release() = 0;
  uint64_t last_use() const { return last_use_; }

 protected:
  TableOwner() = default;
  // Called last in construction and first in destruction; between them, `release` may be called from any thread.
  void enter();
  void leave();
  void touch();

 private:
  std::atomic<uint64_t> last_use_ = 0;
};

// Rows that are kept together: of consecutive integers from `first` on, or of one other number.
struct RopeBlock {
  double first;
  int64_t rows;

  double end() const { return first + static_cast<double>(rows); }
  bool has(double position) const {
    return position == first || (rows > 1 && position > first && position < end() && std::floor(position) == position);
  }
};

// The rows computed since the table was last released. T: float or double.
template <class T>
struct RopeTable {
  RopeTable() = default;
  ~RopeTable();
  RopeTable(const RopeTable&) = delete;
  RopeTable& operator=(const RopeTable&) = delete;

  mutable std::shared_mutex mutex;
  std::unordered_map<double, std::unique_ptr<T[]>> blocks;  // by their first position
  int64_t rows = 0, bytes = 0;
};

template <class T>
class RopeCache final : public TableOwner {
 public:
  // frequencies must outlive the cache. max_rows: 0 for only the bound on bytes.
  RopeCache(const std::vector<DoubleDouble>& frequencies, double scale, int64_t max_rows);
  ~RopeCache() override { leave(); }
  RopeCache(const RopeCache&) = delete;
  RopeCache& operator=(const RopeCache&) = delete;

  // The block with the row of a position.
  RopeBlock block_of(double position) const;

  // For each block, named by its first position, its rows: num_freqs cosines and then num_freqs sines, times scale.
  // nullptr for a block that is not kept. `table` owns them.
  struct Kept {
    std::shared_ptr<const RopeTable<T>> table;
    std::vector<const T*> blocks;
  };
  Kept get(const std::vector<double>& blocks);

  // Computes the row of any position into out, [2 num_freqs].
  void compute(double position, T* out) const;

  void release() override;

 private:
  std::shared_ptr<RopeTable<T>> current() const;
  static std::vector<double> look_up(const RopeTable<T>& table, const std::vector<double>& blocks,
                                     std::vector<const T*>& kept);
  // Takes from `reserved` the bytes that the table holds from then on.
  void add(RopeTable<T>& table, const std::vector<double>& blocks, int64_t& reserved) const;

  const std::vector<DoubleDouble>& frequencies_;
  double scale_;
  int64_t row_size_, max_rows_, page_rows_;
  mutable std::shared_mutex mutex_;  // guards table_
  std::shared_ptr<RopeTable<T>> table_;
};

extern template class RopeCache<float>;
extern template class RopeCache<double>;

}  // namespace rf::core
