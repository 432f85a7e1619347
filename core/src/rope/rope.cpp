// C interface of rf/rope.h: its rules; the rotary operator with its tables, its positions and their rows; the rotation
// by given rows; frequencies and tables. tiles.h does the rest.
#include "rf/rope.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <mutex>
#include <type_traits>
#include <vector>

#include "common/arguments.h"
#include "common/element.h"
#include "common/reference.h"
#include "common/target.h"
#include "rf/rope_scaling.h"
#include "rope/angle.h"
#include "rope/cache.h"
#include "rope/double_double.h"
#include "rope/tiles.h"

struct rf_rope {
  std::vector<rf::core::DoubleDouble> frequencies;
  double scale;
  int64_t max_cached_rows;
  double max_theta;
  // Created when first needed: tables for scale and, if the inverse differs from the transpose, for 1 / scale.
  struct Caches {
    std::atomic<rf::core::RopeCache<float>*> f32{nullptr};
    std::atomic<rf::core::RopeCache<double>*> f64{nullptr};
  };
  Caches forward, inverse;
  std::mutex creation;

  ~rf_rope() {
    for (Caches* caches : {&forward, &inverse}) {
      delete caches->f32.load();
      delete caches->f64.load();
    }
  }
};

namespace rf::core {
namespace {

constexpr int64_t kMaxFrequencies = int64_t{1} << 19;
constexpr double kMaxScale = 0x1p100;
constexpr int64_t kMaxExactPosition = int64_t{1} << 53;

void check_shape(const RopeData& data) {
  check_dtype(data.where, data.dtype);
  require(data.layout == RF_ROPE_PAIRS || data.layout == RF_ROPE_HALVES, data.where,
          "layout must be RF_ROPE_PAIRS or RF_ROPE_HALVES, got ", static_cast<int>(data.layout));
  check_at_least(data.where, 0, {{data.batch, "batch"}, {data.tokens, "tokens"}, {data.heads, "heads"}});
  require(data.head_dim >= 2 * data.num_freqs, data.where, "head_dim must be >= rotary_dim = ", 2 * data.num_freqs,
          ", got ", data.head_dim);
}

void check_memory(const RopeData& data) {
  require(data.x != nullptr && data.y != nullptr, data.where, "x and y must not be NULL, got NULL");
  const int64_t bytes = element_bytes(data.dtype);
  require(is_aligned(data.x, bytes) && is_aligned(data.y, bytes), data.where,
          "x and y must be aligned to their element of ", bytes, " bytes, got ", data.x, " and ", data.y);
  const auto check_view = [&](const char* name, int64_t stride_b, int64_t stride_t, int64_t stride_h) {
    check_reach(data.where,
                {{data.batch, stride_b}, {data.tokens, stride_t}, {data.heads, stride_h}, {data.head_dim, 1}}, name);
  };
  check_view("x", data.x_stride_b, data.x_stride_t, data.x_stride_h);
  check_view("y", data.y_stride_b, data.y_stride_t, data.y_stride_h);
  require(data.x != data.y || (data.x_stride_b == data.y_stride_b && data.x_stride_t == data.y_stride_t &&
                               data.x_stride_h == data.y_stride_h),
          data.where, "strides of x and y must be equal in place, got different ones");
}

void check_position_range(const rf_rope_args& args) {
  if (args.positions_i64 == nullptr && args.positions_f64 == nullptr) {
    int64_t last = 0;
    require(!__builtin_add_overflow(args.position_offset, args.tokens, &last) && last <= kMaxExactPosition &&
                args.position_offset >= -kMaxExactPosition,
            "rope", "positions must be within 2^53, got offset ", args.position_offset);
    return;
  }
  int64_t reach = 0;
  require(args.position_stride_b >= 0 && !__builtin_mul_overflow(args.batch, args.position_stride_b, &reach), "rope",
          "position_stride_b must be >= 0 and fit the batch, got ", args.position_stride_b);
}

// Copies [num_freqs] frequencies; lo may be NULL. num_freqs in 1..2^19, every value finite, |lo| <= |hi|.
std::vector<DoubleDouble> checked_frequencies(const double* hi, const double* lo, int64_t num_freqs) {
  require(hi != nullptr, "rope", "hi must not be NULL, got NULL");
  require(num_freqs >= 1 && num_freqs <= kMaxFrequencies, "rope", "num_freqs must be in 1..", kMaxFrequencies, ", got ",
          num_freqs);
  std::vector<DoubleDouble> frequencies(static_cast<size_t>(num_freqs));
  for (int64_t i = 0; i < num_freqs; ++i) {
    const double low = lo == nullptr ? 0 : lo[i];
    require(std::isfinite(hi[i]) && std::isfinite(low), "rope", "frequencies must be finite, got ", hi[i], " + ", low,
            " at index ", i);
    require(std::abs(low) <= std::abs(hi[i]), "rope", "lo must not exceed hi in magnitude, got ", low, " at index ", i);
    frequencies[static_cast<size_t>(i)] = {hi[i], low};
  }
  return frequencies;
}

double max_magnitude(const std::vector<DoubleDouble>& frequencies) {
  double largest = 0;
  for (const DoubleDouble& theta : frequencies) largest = std::max(largest, std::abs(theta.hi));
  return largest;
}

// So that it and its inverse are normal floats.
void check_scale(double scale) {
  require(std::abs(scale) >= 1 / kMaxScale && std::abs(scale) <= kMaxScale, "rope",
          "scale must be finite, not 0, and within 2^-100..2^100 in magnitude, got ", scale);
}

void check_position(double position, double max_theta) {
  require(std::isfinite(position), "rope", "positions must be finite, got ", position);
  require(std::abs(position) * max_theta <= kMaxAngle, "rope",
          "position times the largest frequency must be within 2^60, got ", position, " * ", max_theta);
}

void check_given_position(const rf_rope_args& args, int64_t b, int64_t t, double max_theta) {
  const int64_t at = b * args.position_stride_b + t;
  if (args.positions_i64 == nullptr) return check_position(args.positions_f64[at], max_theta);
  const int64_t position = args.positions_i64[at];
  require(position >= -kMaxExactPosition && position <= kMaxExactPosition, "rope",
          "positions must be within 2^53, got ", position);
  check_position(static_cast<double>(position), max_theta);
}

// Checks everything in a call except its data. num_freqs belongs to the operator.
void check_args(const rf_rope_args& args, int64_t num_freqs) {
  require(args.direction == RF_ROPE_FORWARD || args.direction == RF_ROPE_TRANSPOSE || args.direction == RF_ROPE_INVERSE,
          "rope", "direction must be RF_ROPE_FORWARD, RF_ROPE_TRANSPOSE or RF_ROPE_INVERSE, got ",
          static_cast<int>(args.direction));
  const RopeData data = data_of("rope", args, num_freqs);
  check_shape(data);
  check_position_range(args);
  if (!data.is_empty()) check_memory(data);
}

void check_rows_args(const rf_rope_rows_args& args) {
  constexpr const char* kWhere = "rotate";
  require(args.direction == RF_ROPE_FORWARD || args.direction == RF_ROPE_TRANSPOSE, kWhere,
          "direction must be RF_ROPE_FORWARD or RF_ROPE_TRANSPOSE, got ", static_cast<int>(args.direction));
  require(args.num_freqs >= 1 && args.num_freqs <= kMaxFrequencies, kWhere, "num_freqs must be in 1..", kMaxFrequencies,
          ", got ", args.num_freqs);
  const RopeData data = data_of(kWhere, args, args.num_freqs);
  check_shape(data);
  require(args.row_stride_b >= 0 && args.row_stride_t >= 0, kWhere, "row strides must be >= 0, got ", args.row_stride_b,
          " and ", args.row_stride_t);
  if (data.is_empty()) return;
  check_memory(data);
  require(args.cos != nullptr && args.sin != nullptr, kWhere, "cos and sin must not be NULL, got NULL");
  const int64_t bytes = row_element_bytes(args.dtype);
  require(is_aligned(args.cos, bytes) && is_aligned(args.sin, bytes), kWhere,
          "cos and sin must be aligned to their element of ", bytes, " bytes, got ", args.cos, " and ", args.sin);
  check_reach(kWhere, {{args.batch, args.row_stride_b}, {args.tokens, args.row_stride_t}, {args.num_freqs, 1}},
              "cos and sin");
}

// The positions of a call.
class Positions {
 public:
  explicit Positions(const rf_rope_args& args) : args_(args) {}

  double at(int64_t b, int64_t t) const {
    const int64_t row = b * args_.position_stride_b;
    if (args_.positions_i64 != nullptr) return static_cast<double>(args_.positions_i64[row + t]);
    if (args_.positions_f64 != nullptr) return args_.positions_f64[row + t];
    return static_cast<double>(args_.position_offset + t);
  }
  // Whether they are an array; otherwise they count from the offset in every sequence.
  bool are_given() const { return args_.positions_i64 != nullptr || args_.positions_f64 != nullptr; }
  // Sequences that differ in their positions.
  int64_t sequences() const { return are_given() && args_.position_stride_b != 0 ? args_.batch : 1; }

  void check(double max_theta) const {
    if (!are_given()) {
      check_position(at(0, 0), max_theta);
      check_position(at(0, args_.tokens - 1), max_theta);
      return;
    }
    for (int64_t b = 0; b < sequences(); ++b) {
      for (int64_t t = 0; t < args_.tokens; ++t) check_given_position(args_, b, t, max_theta);
    }
  }

 private:
  const rf_rope_args& args_;
};

template <class T>
RopeCache<T>& cache_of(rf_rope& rope, rf_rope_direction direction) {
  const bool inverted = direction == RF_ROPE_INVERSE && rope.scale != 1;
  rf_rope::Caches& caches = inverted ? rope.inverse : rope.forward;
  auto& slot = [&caches]() -> auto& {
    if constexpr (std::is_same_v<T, float>) {
      return caches.f32;
    } else {
      return caches.f64;
    }
  }
  ();
  if (RopeCache<T>* cache = slot.load(std::memory_order_acquire)) return *cache;
  const std::lock_guard lock(rope.creation);
  if (slot.load() == nullptr) {
    slot = new RopeCache<T>(rope.frequencies, inverted ? 1 / rope.scale : rope.scale, rope.max_cached_rows);
  }
  return *slot.load();
}

// The tokens of all sequences in order, split into runs whose rows are in the same block of the cache.
struct Runs {
  std::vector<int64_t> begins;
  std::vector<double> blocks;
};

template <class T>
Runs runs_of(const rf_rope_args& args, const RopeCache<T>& cache) {
  const Positions positions(args);
  Runs runs;
  RopeBlock block = cache.block_of(positions.at(0, 0));
  const auto add = [&](int64_t token) {
    runs.begins.push_back(token);
    runs.blocks.push_back(block.first);
  };
  add(0);
  if (!positions.are_given()) {
    for (;;) {
      const int64_t token = static_cast<int64_t>(block.end()) - args.position_offset;
      if (token >= args.tokens) return runs;
      block = cache.block_of(block.end());
      add(token);
    }
  }
  for (int64_t b = 0; b < positions.sequences(); ++b) {
    for (int64_t t = 0; t < args.tokens; ++t) {
      const double position = positions.at(b, t);
      if (block.has(position)) continue;
      block = cache.block_of(position);
      add(b * args.tokens + t);
    }
  }
  return runs;
}

// Kept rows come from the cache; others are computed for the call.
template <class T>
class RowsByPosition final : public RopeRows {
 public:
  RowsByPosition(const rf_rope_args& args, int64_t num_freqs, RopeCache<T>& cache)
      : positions_(args),
        num_freqs_(num_freqs),
        sequence_stride_(positions_.sequences() == 1 ? 0 : args.tokens),
        cache_(cache),
        runs_(runs_of(args, cache)),
        kept_(cache.get(runs_.blocks)) {}

  void set_rows(int64_t b, int64_t first, RopeTile& tile, void* space) const override {
    const int64_t begin = b * sequence_stride_ + first;
    auto next = std::upper_bound(runs_.begins.begin(), runs_.begins.end(), begin);
    auto run = static_cast<size_t>(next - runs_.begins.begin()) - 1;
    for (int64_t t = 0; t < tile.tokens; ++t) {
      if (next != runs_.begins.end() && *next == begin + t) ++next, ++run;
      const double position = positions_.at(b, first + t);
      const T* row = nullptr;
      if (const T* const block = kept_.blocks[run]) {
        row = block + static_cast<int64_t>(position - runs_.blocks[run]) * 2 * num_freqs_;
      } else {
        T* computed = static_cast<T*>(space) + t * 2 * num_freqs_;
        cache_.compute(position, computed);
        row = computed;
      }
      tile.cos[t] = row;
      tile.sin[t] = row + num_freqs_;
    }
  }
  int64_t space_bytes() const override { return 2 * num_freqs_ * static_cast<int64_t>(sizeof(T)); }

 private:
  const Positions positions_;
  const int64_t num_freqs_;
  const int64_t sequence_stride_;  // in tokens of runs_; 0 if all sequences have the same positions
  const RopeCache<T>& cache_;
  const Runs runs_;
  const typename RopeCache<T>::Kept kept_;
};

template <class T>
void apply_with(rf_rope& rope, const rf_rope_args& args, const RopeData& data) {
  RopeCache<T>& cache = cache_of<T>(rope, args.direction);
  rotate_data(data, RowsByPosition<T>(args, data.num_freqs, cache));
}

void apply_reference(rf_rope& rope, const rf_rope_args& args) {
  std::vector<double> hi, lo;
  for (const DoubleDouble& theta : rope.frequencies) {
    hi.push_back(theta.hi);
    lo.push_back(theta.lo);
  }
  ref::rope(hi.data(), lo.data(), static_cast<int64_t>(hi.size()), rope.scale, args);
}

void apply(rf_rope* rope, const rf_rope_args* given) {
  require(rope != nullptr, "rope", "rope must not be NULL, got NULL");
  const rf_rope_args args = arguments("rope", given);
  const auto num_freqs = static_cast<int64_t>(rope->frequencies.size());
  check_args(args, num_freqs);
  const RopeData data = data_of("rope", args, num_freqs);
  if (data.is_empty()) return;
  Positions(args).check(rope->max_theta);
  if (use_reference()) return apply_reference(*rope, args);
  if (args.dtype == RF_F64) return apply_with<double>(*rope, args, data);
  apply_with<float>(*rope, args, data);
}

class GivenRows final : public RopeRows {
 public:
  explicit GivenRows(const rf_rope_rows_args& args) : args_(args) {}

  void set_rows(int64_t b, int64_t first, RopeTile& tile, void*) const override {
    const int64_t bytes = row_element_bytes(args_.dtype);
    for (int64_t t = 0; t < tile.tokens; ++t) {
      const int64_t offset = (b * args_.row_stride_b + (first + t) * args_.row_stride_t) * bytes;
      tile.cos[t] = static_cast<const char*>(args_.cos) + offset;
      tile.sin[t] = static_cast<const char*>(args_.sin) + offset;
    }
  }
  int64_t space_bytes() const override { return 0; }

 private:
  const rf_rope_rows_args& args_;
};

void rotate_by_rows(const rf_rope_rows_args& args) {
  check_rows_args(args);
  const RopeData data = data_of("rotate", args, args.num_freqs);
  if (data.is_empty()) return;
  if (use_reference()) return ref::rotate(args);
  rotate_data(data, GivenRows(args));
}

template <class T>
void table(const double* hi, const double* lo, int64_t num_freqs, double scale, const double* positions, int64_t tokens,
           T* cos_rows, T* sin_rows) {
  const std::vector<DoubleDouble> theta = checked_frequencies(hi, lo, num_freqs);
  check_scale(scale);
  require(tokens >= 0, "rope", "tokens must be >= 0, got ", tokens);
  require(tokens == 0 || (positions != nullptr && cos_rows != nullptr && sin_rows != nullptr), "rope",
          "positions, cos_rows and sin_rows must not be NULL, got NULL");
  check_size("rope", {tokens, num_freqs}, "a table");
  const double max_theta = max_magnitude(theta);
  for (int64_t t = 0; t < tokens; ++t) check_position(positions[t], max_theta);
#pragma omp parallel for schedule(static) if (tokens * num_freqs > 4096)
  for (int64_t t = 0; t < tokens; ++t) {
    fill_row(theta, scale, positions[t], cos_rows + t * num_freqs, sin_rows + t * num_freqs);
  }
}

}  // namespace
}  // namespace rf::core

extern "C" rf_status rf_rope_create(const double* hi, const double* lo, int64_t num_freqs, double scale,
                                    int64_t max_cached_rows, rf_rope** out) {
  using namespace rf::core;
  return guarded("rope", [&] {
    require(out != nullptr, "rope", "out must not be NULL, got NULL");
    *out = nullptr;
    require(max_cached_rows >= 0 && max_cached_rows <= kMaxCachedRows, "rope", "max_cached_rows must be in 0..",
            kMaxCachedRows, ", got ", max_cached_rows);
    check_scale(scale);
    auto rope = std::make_unique<rf_rope>();
    rope->frequencies = checked_frequencies(hi, lo, num_freqs);
    rope->scale = scale;
    rope->max_cached_rows = max_cached_rows;
    rope->max_theta = max_magnitude(rope->frequencies);
    *out = rope.release();
  });
}

extern "C" void rf_rope_destroy(rf_rope* rope) { delete rope; }

extern "C" rf_status rf_rope_apply(rf_rope* rope, const rf_rope_args* args) {
  return rf::core::guarded("rope", [&] { rf::core::apply(rope, args); });
}

extern "C" rf_status rf_rope_rotate(const rf_rope_rows_args* args) {
  return rf::core::with_arguments("rotate", args, rf::core::rotate_by_rows);
}

extern "C" rf_status rf_rope_frequencies(double base, int64_t rotary_dim, double* hi, double* lo) {
  rf_rope_scaling unscaled = {};
  unscaled.struct_size = sizeof(unscaled);
  unscaled.type = RF_ROPE_SCALING_NONE;
  unscaled.base = base;
  return rf_rope_scaled_frequencies(&unscaled, rotary_dim, hi, lo);
}

extern "C" rf_status rf_rope_table_f32(const double* hi, const double* lo, int64_t num_freqs, double scale,
                                       const double* positions, int64_t tokens, float* cos_rows, float* sin_rows) {
  return rf::core::guarded("rope",
                           [&] { rf::core::table(hi, lo, num_freqs, scale, positions, tokens, cos_rows, sin_rows); });
}

extern "C" rf_status rf_rope_table_f64(const double* hi, const double* lo, int64_t num_freqs, double scale,
                                       const double* positions, int64_t tokens, double* cos_rows, double* sin_rows) {
  return rf::core::guarded("rope",
                           [&] { rf::core::table(hi, lo, num_freqs, scale, positions, tokens, cos_rows, sin_rows); });
}
