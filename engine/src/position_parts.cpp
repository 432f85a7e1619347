// The parts of a position that encodings compute: vectors added to the embeddings, and rotations of queries, keys and
// values (position.h).
#include <algorithm>
#include <functional>
#include <mutex>
#include <numeric>
#include <shared_mutex>
#include <utility>

#include "position.h"
#include "rf/io/error.h"

namespace rf::engine {

namespace {

constexpr int64_t kMaxCachedBytes = int64_t{64} << 20;
constexpr int64_t kFirstRows = 512;

int64_t highest_end(const Sequences& sequences) {
  const int64_t* end = sequences.positions + sequences.tokens;
  return sequences.tokens == 0 ? 0 : *std::max_element(sequences.positions, end) + 1;
}

// Rows by position, made when they are first needed and kept within 64 MiB. Thread-safe.
class RowCache {
 public:
  // Computes rows [count, width] of positions.
  using Compute = std::function<void(const int64_t* positions, int64_t count, float* rows)>;
  RowCache(int64_t width, Compute compute)
      : width_(width), most_(kMaxCachedBytes / (width * int64_t{sizeof(float)})), compute_(std::move(compute)) {}

  // Calls use(t, row) for each token.
  template <class Use>
  void for_rows(const Sequences& sequences, const Use& use) {
    const int64_t rows = highest_end(sequences);
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
  void grow_to(int64_t count) {
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

  int64_t width_, most_;
  Compute compute_;
  std::shared_mutex mutex_;
  int64_t count_ = 0;
  std::vector<float> rows_;
};

class LearnedVectors : public Position {
 public:
  LearnedVectors(MappedRows table, int64_t width, const PositionSpec& spec) : table_(std::move(table)), spec_(spec) {
    if (table_.width() != width)
      fail("position", "position vectors must have {} elements, got {}", width, table_.width());
  }

  void check(const Sequences& sequences) const override {
    for (int64_t t = 0; t < sequences.tokens; ++t) {
      if (sequences.positions[t] >= table_.rows() - spec_.first_row) {
        fail("position", "positions must be below the {} of the trained table, got {}", table_.rows() - spec_.first_row,
             sequences.positions[t]);
      }
    }
  }

  void add_input(const Sequences& sequences, float* x, int64_t width) const override {
    for (int64_t i = 0; i < sequences.count; ++i) {
      int64_t padding = 0;  // before the token, in its sequence
      for (int64_t t = sequences.cu_seqlens[i]; t < sequences.cu_seqlens[i + 1]; ++t) {
        const bool pads = sequences.ids != nullptr && sequences.ids[t] == spec_.padding_id;
        const int64_t row = spec_.first_row + std::max<int64_t>(0, sequences.positions[t] - padding);
        table_.add_row(pads ? spec_.padding_id : row, x + t * width);
        if (pads) ++padding;
      }
    }
  }

 private:
  MappedRows table_;
  PositionSpec spec_;
};

class SinusoidalVectors : public Position {
 public:
  SinusoidalVectors(SinusoidLayout layout, int64_t width)
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

void set_rotations(const PositionRows& rows, rf_rope_layout layout, int64_t pairs, rf_attention_args& args) {
  args.layout = layout;
  args.query = {rows.query_cos.data(), rows.query_sin.data(), 1, pairs};
  args.key =
      rows.key_cos.empty() ? args.query : rf_attention_rotation{rows.key_cos.data(), rows.key_sin.data(), 1, pairs};
}

void resize(int64_t tokens, int64_t pairs, std::vector<float>& cos, std::vector<float>& sin) {
  const auto size = static_cast<size_t>(tokens * pairs);
  if (cos.size() < size) {
    cos.resize(size);
    sin.resize(size);
  }
}

class Rotary : public Position {
 public:
  explicit Rotary(RotaryRows rows)
      : rows_(std::move(rows)), cache_(2 * rows_.pairs(), [this](const int64_t* positions, int64_t count, float* to) {
          fill_cached(positions, count, to);
        }) {}

  void check(const Sequences& sequences) const override {
    const RopeSpec& spec = rows_.settings().spec;
    const bool bounded = spec.type == RopeType::kDynamic && spec.precision == RopePrecision::kFloat32;
    for_sequences(sequences, [&](int64_t, int64_t, int64_t first, int64_t last) {
      rows_.check_span(last - first + 1, io::DType::kF32);
      rows_.check_on_grid(last);
      if (bounded && last >= spec.trained_length) {
        fail("position",
             "rope_type dynamic of precision float32 must stay within the training length {} here, got position {}; "
             "precision exact has no such limit",
             spec.trained_length, last);
      }
    });
  }

  void prepare(const Sequences& sequences, PositionRows& rows) const override {
    const int64_t pairs = rows_.pairs();
    resize(sequences.tokens, pairs, rows.query_cos, rows.query_sin);
    if (rows_.sides_differ() || rows_.depends_on_sequence(highest_end(sequences)))
      return fill_by_sequence(sequences, rows);
    cache_.for_rows(sequences, [&](int64_t t, const float* row) {
      std::copy_n(row, pairs, rows.query_cos.data() + t * pairs);
      std::copy_n(row + pairs, pairs, rows.query_sin.data() + t * pairs);
    });
  }

  void set_terms(int64_t, const PositionRows& rows, rf_attention_args& args) const override {
    const bool pairs = rows_.settings().layout == RotaryLayout::kPairs;
    set_rotations(rows, pairs ? RF_ROPE_PAIRS : RF_ROPE_HALVES, rows_.pairs(), args);
    if (rows_.settings().rotates_values) args.value = args.key;
  }

  bool changes_within(int64_t tokens) const override { return rows_.depends_on_sequence(tokens); }

 private:
  void fill_cached(const int64_t* positions, int64_t count, float* to) const {
    const int64_t pairs = rows_.pairs();
    std::vector<float> cos(static_cast<size_t>(count * pairs)), sin(cos.size());
    rows_.fill(RotarySide::kQuery, {.count = count, .ids = positions}, cos.data(), sin.data());
    for (int64_t t = 0; t < count; ++t)
      std::copy_n(sin.data() + t * pairs, pairs, std::copy_n(cos.data() + t * pairs, pairs, to + 2 * t * pairs));
  }

  void fill_by_sequence(const Sequences& sequences, PositionRows& rows) const {
    const auto tokens = static_cast<size_t>(sequences.tokens);
    rows.first.resize(tokens);
    rows.end.resize(tokens);
    for_sequences(sequences, [&](int64_t begin, int64_t end, int64_t first, int64_t last) {
      std::fill(rows.first.begin() + begin, rows.first.begin() + end, first);
      std::fill(rows.end.begin() + begin, rows.end.begin() + end, last + 1);
    });
    const RotaryTokens all{
        .count = sequences.tokens, .ids = sequences.positions, .first = rows.first.data(), .end = rows.end.data()};
    rows_.fill(RotarySide::kQuery, all, rows.query_cos.data(), rows.query_sin.data());
    if (!rows_.sides_differ()) return;
    resize(sequences.tokens, rows_.pairs(), rows.key_cos, rows.key_sin);
    rows_.fill(RotarySide::kKey, all, rows.key_cos.data(), rows.key_sin.data());
  }

  RotaryRows rows_;
  mutable RowCache cache_;  // of cos and sin, where they follow from the position alone
};

class LayerRotations : public Position {
 public:
  LayerRotations(const std::vector<RotarySettings>& rotations, std::vector<LayerSpec> layers)
      : layers_(std::move(layers)) {
    for (const RotarySettings& each : rotations) rotations_.push_back(make_rotary(RotaryRows(each)));
  }

  void check(const Sequences& sequences) const override {
    for (const auto& each : rotations_) each->check(sequences);
  }
  void prepare(const Sequences& sequences, PositionRows& rows) const override {
    rows.rotations.resize(rotations_.size());
    for (size_t i = 0; i < rotations_.size(); ++i) rotations_[i]->prepare(sequences, rows.rotations[i]);
  }
  void set_terms(int64_t layer, const PositionRows& rows, rf_attention_args& args) const override {
    const int rotation = layers_[static_cast<size_t>(layer)].rotation;
    if (rotation < 0) return;
    const auto index = static_cast<size_t>(rotation);
    rotations_[index]->set_terms(layer, rows.rotations[index], args);
  }
  bool changes_within(int64_t tokens) const override {
    return std::ranges::any_of(rotations_, [&](const auto& each) { return each->changes_within(tokens); });
  }

 private:
  std::vector<std::unique_ptr<Position>> rotations_;
  std::vector<LayerSpec> layers_;
};

class StoredRotation : public Position {
 public:
  StoredRotation(std::vector<float> table, int64_t dim) : table_(std::move(table)), dim_(dim) {}

  void check(const Sequences& sequences) const override {
    const int64_t last = highest_end(sequences) - 1, rows = std::ssize(table_) / dim_;
    if (last >= rows)
      fail("model", "positions must be below the {} rows of the checkpoint's own position table, got {}", rows, last);
  }

  void prepare(const Sequences& sequences, PositionRows& rows) const override {
    const int64_t pairs = dim_ / 2;
    resize(sequences.tokens, pairs, rows.query_cos, rows.query_sin);
    for (int64_t t = 0; t < sequences.tokens; ++t) {
      const float* row = table_.data() + sequences.positions[t] * dim_;
      std::copy_n(row, pairs, rows.query_sin.data() + t * pairs);
      std::copy_n(row + pairs, pairs, rows.query_cos.data() + t * pairs);
    }
  }

  void set_terms(int64_t, const PositionRows& rows, rf_attention_args& args) const override {
    set_rotations(rows, RF_ROPE_PAIRS, dim_ / 2, args);
  }

 private:
  std::vector<float> table_;
  int64_t dim_;
};

}  // namespace

std::unique_ptr<Position> make_learned(MappedRows table, int64_t width, const PositionSpec& spec) {
  return std::make_unique<LearnedVectors>(std::move(table), width, spec);
}

std::unique_ptr<Position> make_sinusoidal(SinusoidLayout layout, int64_t width) {
  return std::make_unique<SinusoidalVectors>(layout, width);
}

std::unique_ptr<Position> make_rotary(RotaryRows rows) { return std::make_unique<Rotary>(std::move(rows)); }

std::unique_ptr<Position> make_layer_rotations(const std::vector<RotarySettings>& rotations,
                                               const std::vector<LayerSpec>& layers) {
  return std::make_unique<LayerRotations>(rotations, layers);
}

std::unique_ptr<Position> make_stored_rotation(std::vector<float> table, int64_t dim) {
  return std::make_unique<StoredRotation>(std::move(table), dim);
}

}  // namespace rf::engine
