// Table rows kept by position, and the bound on their bytes (see the header).
#include "rope/cache.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <mutex>

#include "rope/angle.h"

namespace rf::core {
namespace {

constexpr int64_t kPageRows = 256;
constexpr int64_t kPageBytes = 256 * 1024;
// Bytes of a block in addition to its rows.
constexpr int64_t kBlockBytes = 64;

// All caches of the process. Never destroyed, because caches may be destroyed later, when the process ends.
struct Owners {
  std::mutex mutex;
  std::vector<TableOwner*> all;
  std::atomic<int64_t> bytes = 0;
  std::atomic<uint64_t> clock = 0;
};

Owners& owners() {
  static Owners& value = *new Owners;
  return value;
}

std::atomic<int64_t> computed = 0;

// Bytes that count towards the bound before a table holds them.
struct Reservation {
  // Releases tables, the least recently used first, until `wanted` more bytes fit. Reserves nothing if they cannot fit,
  // or if calls still read the tables to be released.
  explicit Reservation(int64_t wanted) {
    if (wanted > kMaxTableBytes) return;
    Owners& known = owners();
    const std::lock_guard lock(known.mutex);
    std::vector<TableOwner*> oldest = known.all;
    std::sort(oldest.begin(), oldest.end(), [](const auto* a, const auto* b) { return a->last_use() < b->last_use(); });
    for (TableOwner* owner : oldest) {
      if (known.bytes + wanted <= kMaxTableBytes) break;
      owner->release();
    }
    if (known.bytes + wanted <= kMaxTableBytes) known.bytes += bytes = wanted;
  }
  ~Reservation() { owners().bytes -= bytes; }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  int64_t bytes = 0;  // 0: none
};

}  // namespace

int64_t table_bytes() { return owners().bytes; }

void release_tables() {
  const std::lock_guard lock(owners().mutex);
  for (TableOwner* owner : owners().all) owner->release();
}

int64_t rows_computed() { return computed; }

void TableOwner::enter() {
  const std::lock_guard lock(owners().mutex);
  owners().all.push_back(this);
}

void TableOwner::leave() {
  const std::lock_guard lock(owners().mutex);
  std::erase(owners().all, this);
}

void TableOwner::touch() { last_use_ = ++owners().clock; }

template <class T>
RopeTable<T>::~RopeTable() {
  owners().bytes -= bytes;
}

template <class T>
RopeCache<T>::RopeCache(const std::vector<DoubleDouble>& frequencies, double scale, int64_t max_rows)
    : frequencies_(frequencies),
      scale_(scale),
      row_size_(2 * static_cast<int64_t>(frequencies.size())),
      max_rows_(max_rows == 0 ? INT64_MAX : max_rows),
      table_(std::make_shared<RopeTable<T>>()) {
  // A power of two, smaller for long rows.
  const int64_t row_bytes = row_size_ * static_cast<int64_t>(sizeof(T));
  page_rows_ = static_cast<int64_t>(
      std::bit_floor(static_cast<uint64_t>(std::clamp<int64_t>(kPageBytes / row_bytes, 1, kPageRows))));
  enter();
}

template <class T>
std::shared_ptr<RopeTable<T>> RopeCache<T>::current() const {
  const std::shared_lock lock(mutex_);
  return table_;
}

template <class T>
void RopeCache<T>::release() {
  auto fresh = std::make_shared<RopeTable<T>>();
  const std::unique_lock lock(mutex_);
  table_.swap(fresh);
}

template <class T>
RopeBlock RopeCache<T>::block_of(double position) const {
  if (std::floor(position) != position) return {position, 1};
  const auto rows = static_cast<double>(page_rows_);
  return {std::floor(position / rows) * rows, page_rows_};
}

// Sets the blocks that the table contains. Returns the missing blocks, each once.
template <class T>
std::vector<double> RopeCache<T>::look_up(const RopeTable<T>& table, const std::vector<double>& blocks,
                                          std::vector<const T*>& kept) {
  std::vector<double> missing;
  const std::shared_lock lock(table.mutex);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto found = table.blocks.find(blocks[i]);
    if (found == table.blocks.end()) {
      missing.push_back(blocks[i]);
    } else {
      kept[i] = found->second.get();
    }
  }
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  return missing;
}

template <class T>
void RopeCache<T>::add(RopeTable<T>& table, const std::vector<double>& blocks, int64_t& reserved) const {
  std::vector<std::unique_ptr<T[]>> fresh;
  std::vector<std::pair<double, T*>> rows;
  for (const double first : blocks) {
    const int64_t count = block_of(first).rows;
    T* data = fresh.emplace_back(std::make_unique_for_overwrite<T[]>(static_cast<size_t>(count * row_size_))).get();
    for (int64_t r = 0; r < count; ++r) rows.emplace_back(first + static_cast<double>(r), data + r * row_size_);
  }
#pragma omp parallel for schedule(static)
  for (size_t r = 0; r < rows.size(); ++r) compute(rows[r].first, rows[r].second);
  const std::unique_lock lock(table.mutex);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const int64_t count = block_of(blocks[i]).rows;
    if (!table.blocks.try_emplace(blocks[i], std::move(fresh[i])).second) continue;  // another call was faster
    const int64_t bytes = count * row_size_ * static_cast<int64_t>(sizeof(T)) + kBlockBytes;
    table.rows += count, table.bytes += bytes;
    reserved -= bytes;
  }
}

template <class T>
typename RopeCache<T>::Kept RopeCache<T>::get(const std::vector<double>& blocks) {
  touch();
  // Making space may release this table too; then it tries again with an empty table.
  for (int attempt = 0;; ++attempt) {
    const std::shared_ptr<RopeTable<T>> table = current();
    Kept kept{table, std::vector<const T*>(blocks.size())};
    std::vector<double> missing = look_up(*table, blocks, kept.blocks);
    if (missing.empty()) return kept;
    int64_t count = 0, room = max_rows_;
    {
      const std::shared_lock lock(table->mutex);
      room -= table->rows;
    }
    std::erase_if(missing, [&](double first) {
      if (count >= room) return true;
      count += block_of(first).rows;
      return false;
    });
    if (missing.empty()) return kept;
    const int64_t bytes =
        count * row_size_ * static_cast<int64_t>(sizeof(T)) + static_cast<int64_t>(missing.size()) * kBlockBytes;
    Reservation reserved(bytes);
    if (reserved.bytes == 0) return kept;
    if (attempt == 0 && current() != table) continue;
    add(*table, missing, reserved.bytes);
    look_up(*table, blocks, kept.blocks);
    return kept;
  }
}

template <class T>
void RopeCache<T>::compute(double position, T* out) const {
  fill_row(frequencies_, scale_, position, out, out + row_size_ / 2);
  computed.fetch_add(1, std::memory_order_relaxed);
}

template class RopeCache<float>;
template class RopeCache<double>;

}  // namespace rf::core
