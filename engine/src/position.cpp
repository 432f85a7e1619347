// Position encodings without torch (see the header).
#include "position.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <nlohmann/json.hpp>
#include <shared_mutex>

#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/strict_object.h"
#include "rf/model/rope_spec.h"
#include "rf/rope.h"
#include "status.h"

namespace rf::engine {

namespace {

constexpr const char* kWhere = "position";

// A trained vector for each position, added to the input.
class LearnedInput : public Position {
 public:
  LearnedInput(MappedRows table, int64_t width) : table_(std::move(table)) {
    if (table_.width() != width) fail(kWhere, "position vectors must have {} elements, got {}", width, table_.width());
  }

  void check(const Sequences& sequences) const override {
    for (int64_t t = 0; t < sequences.tokens; ++t) {
      if (sequences.positions[t] >= table_.rows()) {
        fail(kWhere, "positions must be below the {} of the trained table, got {}", table_.rows(),
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

// Rows by position, made once and kept.
class RotationTable {
 public:
  RotationTable(RopeFrequencies theta, double scale) : theta_(std::move(theta)), scale_(scale) {}

  int64_t pairs() const { return static_cast<int64_t>(theta_.hi.size()); }

  void copy_rows(const Sequences& sequences, std::vector<float>& cos, std::vector<float>& sin) {
    const auto size = static_cast<size_t>(sequences.tokens * pairs());
    if (cos.size() < size) cos.resize(size), sin.resize(size);
    const int64_t last = *std::max_element(sequences.positions, sequences.positions + sequences.tokens);
    if (last >= kMaxKept) return compute(sequences, cos, sin);
    grow_to(last + 1);
    const std::shared_lock lock(mutex_);
    for (int64_t t = 0; t < sequences.tokens; ++t) {
      const int64_t from = sequences.positions[t] * pairs();
      std::copy_n(cos_.data() + from, pairs(), cos.data() + t * pairs());
      std::copy_n(sin_.data() + from, pairs(), sin.data() + t * pairs());
    }
  }

 private:
  static constexpr int64_t kMaxKept = int64_t{1} << 18;

  void compute(const Sequences& sequences, std::vector<float>& cos, std::vector<float>& sin) const {
    const std::vector<double> positions(sequences.positions, sequences.positions + sequences.tokens);
    table(positions, cos.data(), sin.data());
  }

  void table(const std::vector<double>& positions, float* cos, float* sin) const {
    check_status(rf_rope_table_f32(theta_.hi.data(), theta_.lo.data(), pairs(), scale_, positions.data(),
                                   static_cast<int64_t>(positions.size()), cos, sin));
  }

  void grow_to(int64_t count) {
    {
      const std::shared_lock lock(mutex_);
      if (rows_ >= count) return;
    }
    const std::unique_lock lock(mutex_);
    const int64_t target = std::min(kMaxKept, std::max({count, 2 * rows_, int64_t{512}}));
    if (rows_ >= count) return;
    std::vector<double> positions(static_cast<size_t>(target - rows_));
    for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<double>(rows_ + static_cast<int64_t>(i));
    cos_.resize(static_cast<size_t>(target * pairs()));
    sin_.resize(cos_.size());
    table(positions, cos_.data() + rows_ * pairs(), sin_.data() + rows_ * pairs());
    rows_ = target;
  }

  RopeFrequencies theta_;
  double scale_;
  std::shared_mutex mutex_;
  int64_t rows_ = 0;
  std::vector<float> cos_, sin_;
};

class Rotary : public Position {
 public:
  Rotary(const RopeSpec& spec, rf_rope_layout layout, bool rotates_values)
      : table_(frequencies(spec, 0), spec.attention_factor), layout_(layout), rotates_values_(rotates_values) {}

  void prepare(const Sequences& sequences, PositionRows& rows) const override {
    table_.copy_rows(sequences, rows.query_cos, rows.query_sin);
  }

  void set_terms(int64_t, const PositionRows& rows, rf_attention_args& args) const override {
    args.layout = layout_;
    args.query = {rows.query_cos.data(), rows.query_sin.data(), 1, table_.pairs()};
    args.key = args.query;
    if (rotates_values_) args.value = args.query;
  }

 private:
  mutable RotationTable table_;
  rf_rope_layout layout_;
  bool rotates_values_;
};

std::unique_ptr<Position> open_rotary(const ModelConfig& config) {
  const EncodingConfig& encoding = config.position_encodings[0];
  const nlohmann::json json = io::parse_json(encoding.options, "position_encoding");
  io::StrictObject options(json, "position_encoding", encoding.type);
  const RopeSpec spec = read_rope_spec(
      options, {.head_dim = config.head_dim(), .max_position_embeddings = config.max_position_embeddings});
  const auto layout = options.choice("layout", RF_ROPE_PAIRS, {{"pairs", RF_ROPE_PAIRS}, {"halves", RF_ROPE_HALVES}});
  const bool rotates_values = options.boolean("rotary_value", false) || config.rotary_value;
  options.finish();
  return std::make_unique<Rotary>(spec, layout, rotates_values);
}

}  // namespace

void Position::check(const Sequences&) const {}
void Position::add_input(const Sequences&, float*, int64_t) const {}
void Position::prepare(const Sequences&, PositionRows&) const {}
void Position::set_terms(int64_t, const PositionRows&, rf_attention_args&) const {}

std::unique_ptr<Position> Position::open(const ModelConfig& config, const std::string&, const Weights& weights,
                                         const std::string& prefix, const std::function<void(const std::string&)>&) {
  if (model_type(config) == "bert") {
    return std::make_unique<LearnedInput>(weights.rows(prefix + kLearnedPositions), config.embedding_size);
  }
  const std::string& type = config.position_encodings.at(0).type;
  if (config.position_encodings.size() == 1 && type == "rope") return open_rotary(config);
  fail(kWhere, "the position encoding must be rope or learned, got {}", type);
}

}  // namespace rf::engine
