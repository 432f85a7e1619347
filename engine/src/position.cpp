// The position of a model: from its configuration to the parts that compute it (see the header), and the part of terms
// that are constants of the checkpoint.
#include "position.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "rf/attention_terms.h"
#include "rf/io/error.h"
#include "rf/model/computed_encoding.h"

namespace rf::engine {

namespace {

constexpr const char* kPositionWhere = "position";

using SetTerm = std::function<void(rf_attention_args&)>;

// Appends functions that set the members of the arguments for these terms.
void add_terms(const PositionTerms::Terms& terms, std::vector<SetTerm>& set) {
#define RF_ADD_TABLE(member, ...)                                                                  \
  if (name == #member) {                                                                           \
    const int64_t width = term.shape.size() == 3 ? term.shape[2] : 1;                              \
    const rf_attention_table table = {term.values.data(), term.lo, term.hi, term.shape[0], width}; \
    set.push_back([table](rf_attention_args& args) { args.member = table; });                      \
  }
#define RF_ADD_NUMBERS(member, ...) \
  if (name == #member) set.push_back([values = term.values.data()](rf_attention_args& args) { args.member = values; });
#define RF_ADD_PAIR(query_member, query_symbol, key_member, ...) \
  RF_ADD_NUMBERS(query_member)                                   \
  RF_ADD_NUMBERS(key_member)                                     \
  if (name == #key_member) set.push_back([count = term.shape[1]](rf_attention_args& args) { args.positions = count; });
  for (const auto& [name, term] : terms) {
    RF_ATTENTION_TERMS(RF_NO_TERM, RF_ADD_TABLE, RF_ADD_NUMBERS, RF_ADD_PAIR, RF_NO_TERM)
  }
#undef RF_ADD_TABLE
#undef RF_ADD_NUMBERS
#undef RF_ADD_PAIR
}

class ConstantTerms : public Position {
 public:
  // owner: of `terms`. model_dir: for messages.
  ConstantTerms(const PositionTerms& terms, std::shared_ptr<const void> owner, std::string model_dir)
      : terms_(terms), owner_(std::move(owner)), model_dir_(std::move(model_dir)) {
    std::vector<SetTerm> shared;
    add_terms(terms.shared, shared);
    layers_.assign(terms.layers.size(), shared);
    for (size_t i = 0; i < layers_.size(); ++i) add_terms(terms.layers[i], layers_[i]);
    rf_attention_args args = {};
    for (const SetTerm& set : layers_.at(0)) set(args);
    by_position_ = args.positions > 0;
  }

  void check(const Sequences& sequences) const override {
    for_sequences(sequences, [&](int64_t, int64_t, int64_t first, int64_t last) {
      // Rows by distance allow any first position; rows by position do not.
      check_length(by_position_ ? last + 1 : last - first + 1);
    });
  }

  std::shared_ptr<const PositionTerms> terms() const override { return {owner_, &terms_}; }

  void set_terms(int64_t layer, const PositionRows&, rf_attention_args& args) const override {
    for (const SetTerm& set : layers_[static_cast<size_t>(layer)]) set(args);
    if (terms_.scale) args.scale = *terms_.scale;
  }

 private:
  void check_length(int64_t tokens) const {
    if (tokens > terms_.longest) {
      fail(kPositionWhere, "a sequence must have at most the {} positions that the encoding reads, got {}",
           terms_.longest, tokens);
    }
    if (tokens > terms_.tokens) {
      fail(kPositionWhere, "a sequence must have at most the {} positions of {}, got {}; {}", terms_.tokens,
           kPositionTermsFile, tokens, bake_command(model_dir_, tokens));
    }
  }

  const PositionTerms& terms_;
  std::shared_ptr<const void> owner_;
  std::string model_dir_;
  std::vector<std::vector<SetTerm>> layers_;  // names are looked up once, not in each call
  bool by_position_;                          // some rows belong to a position
};

// Several encodings combined.
class Combination : public Position {
 public:
  Combination(std::vector<std::unique_ptr<Position>> parts, bool rotates_values)
      : parts_(std::move(parts)), rotates_values_(rotates_values) {}

  void check(const Sequences& sequences) const override {
    for (const auto& part : parts_) part->check(sequences);
  }
  void add_input(const Sequences& sequences, float* x, int64_t width) const override {
    for (const auto& part : parts_) part->add_input(sequences, x, width);
  }
  void prepare(const Sequences& sequences, PositionRows& rows) const override {
    for (const auto& part : parts_) part->prepare(sequences, rows);
  }
  void set_terms(int64_t layer, const PositionRows& rows, rf_attention_args& args) const override {
    for (const auto& part : parts_) part->set_terms(layer, rows, args);
    if (rotates_values_) args.value = args.key;
  }
  std::shared_ptr<const PositionTerms> terms() const override {
    for (const auto& part : parts_) {
      if (auto terms = part->terms()) return terms;
    }
    return nullptr;
  }
  bool changes_within(int64_t tokens) const override {
    return std::any_of(parts_.begin(), parts_.end(), [&](const auto& part) { return part->changes_within(tokens); });
  }

 private:
  std::vector<std::unique_ptr<Position>> parts_;
  bool rotates_values_;
};

// NEZHA's rows, as terms.
struct NezhaTerms {
  std::vector<float> rows;
  PositionTerms terms;

  NezhaTerms(int64_t clip, const ModelConfig& config) : rows(static_cast<size_t>((2 * clip + 1) * config.head_dim())) {
    nezha_rows(clip, config.head_dim(), rows.data());
    const PositionTerms::Term term{
        .shape = {1, 2 * clip + 1, config.head_dim()}, .values = rows, .lo = -clip, .hi = clip};
    terms.shared = {{"key_table", term}, {"value_table", term}};
    terms.layers.resize(static_cast<size_t>(config.num_hidden_layers));
  }
};

class Opening {
 public:
  Opening(const ModelConfig& config, const std::string& model_dir, const Weights& weights)
      : config_(config), model_dir_(model_dir), weights_(weights) {}

  std::unique_ptr<Position> open() {
    if (needs_position_terms(config_)) open_file();
    const size_t count = config_.position_encodings.size();
    for (size_t i = 0; i < count; ++i) {
      const std::optional<ComputedEncoding> computed = computed_encoding(config_.position_encodings[i], config_);
      name_ = count == 1 ? kEncodingPrefix : fmt::format("{}{}.", kEncodingPrefix, i);
      if (computed) std::visit([this](const auto& encoding) { add(encoding); }, *computed);
    }
    if (rotations_ > 1 || nezhas_ > 1) {
      fail(kPositionWhere, "each term must be set by one encoding, got {} from two",
           rotations_ > 1 ? "rotations" : "key_table");
    }
    if (config_.rotary_value && rotations_ == 0) {
      fail(kPositionWhere, "rotary_value needs a position encoding that rotates, got {}",
           config_.position_encodings[0].type);
    }
    return std::make_unique<Combination>(std::move(parts_), config_.rotary_value);
  }

 private:
  void open_file() {
    file_ = std::make_shared<const PositionTermsFile>(model_dir_, config_, weights_.terms_hash(config_),
                                                      weights_.terms_file());
    if (file_->terms().reads_projections && weights_.changes_projections()) {
      fail<ArgumentError>(kPositionWhere,
                          "an adapter of projections must be merged into a model whose position encoding reads them, "
                          "got one for {}",
                          model_dir_);
    }
    parts_.push_back(std::make_unique<ConstantTerms>(file_->terms(), file_, model_dir_));
  }

  void add(const NoPosition&) {}
  void add(const LearnedInput& learned) {
    MappedRows table = weights_.mapped_rows(name_ + "weight");
    if (table.rows() != learned.positions)
      fail(kPositionWhere, "{}weight must have {} rows, got {}", name_, learned.positions, table.rows());
    parts_.push_back(make_learned(std::move(table), config_.embedding_size));
  }
  void add(const SinusoidalInput& sinusoidal) {
    parts_.push_back(make_sinusoidal(sinusoidal.layout, config_.embedding_size));
  }
  void add(const NezhaTable& nezha) {
    ++nezhas_;
    if (file_ != nullptr) return;  // which has its table
    const auto terms = std::make_shared<const NezhaTerms>(nezha.clip, config_);
    parts_.push_back(std::make_unique<ConstantTerms>(terms->terms, terms, model_dir_));
  }
  void add(const RotarySettings& settings) {
    ++rotations_;
    parts_.push_back(make_rotary(RotaryRows(settings, given_frequencies(settings))));
  }

  // The frequencies of the file or the weights; empty if they are computed.
  GivenFrequencies given_frequencies(const RotarySettings& settings) const {
    const int64_t pairs = settings.spec.rotary_dim / 2;
    if (settings.trained != TrainedFrequencies::kNone) {
      std::vector<float> trained = weights_.vector(name_ + parameter_name(settings.trained));
      check_pairs(std::ssize(trained), pairs);
      if (settings.trained == TrainedFrequencies::kLog) {
        for (float& each : trained) each = static_cast<float>(std::exp(static_cast<double>(each)));
      }
      return [trained](int64_t) { return trained; };
    }
    if (settings.spec.precision == RopePrecision::kExact) return {};
    const auto& shared = file_->terms().shared;
    const auto found = shared.find("rotary_frequencies");
    const bool is_long = settings.spec.type == RopeType::kLongrope;
    if (found == shared.end() || found->second.shape[0] != (is_long ? 2 : 1)) {
      fail(kPositionWhere, "{} must have rotary_frequencies for precision float32, got none; {}", kPositionTermsFile,
           bake_command(model_dir_));
    }
    check_pairs(found->second.shape[1], pairs);
    return [file = file_, values = found->second.values, pairs, is_long,
            trained_length = settings.spec.trained_length](int64_t sequence_length) {
      const auto* begin = values.data() + (is_long && sequence_length > trained_length ? pairs : 0);
      return std::vector<float>(begin, begin + pairs);
    };
  }

  static void check_pairs(int64_t given, int64_t pairs) {
    if (given != pairs)
      fail(kPositionWhere, "frequencies must be {}, half of the rotated dimensions, got {}", pairs, given);
  }

  const ModelConfig& config_;
  const std::string& model_dir_;
  const Weights& weights_;
  std::string name_;  // of the tensors of the encoding
  std::shared_ptr<const PositionTermsFile> file_;
  std::vector<std::unique_ptr<Position>> parts_;
  int rotations_ = 0, nezhas_ = 0;
};

// The rotation by a RoFormer's stored table, if it differs from the computed table.
std::unique_ptr<Position> open_stored_table(const ModelConfig& config, const std::string& model_dir,
                                            const Weights& weights, const std::string& prefix,
                                            const std::function<void(const std::string&)>& warn) {
  const std::string name = prefix + "encoder.embed_positions.weight";
  if (!has_position_table(config) || !weights.has(name)) return nullptr;
  std::vector<float> table = weights.vector(name);
  const std::vector<double> exact(table.begin(), table.end());
  const std::optional<std::string> warning = stored_table_warning(model_dir, exact, config.head_dim());
  if (!warning) return nullptr;
  if (warn) warn(*warning);
  std::vector<std::unique_ptr<Position>> parts;
  parts.push_back(make_stored_rotation(std::move(table), config.head_dim()));
  return std::make_unique<Combination>(std::move(parts), config.rotary_value);
}

}  // namespace

std::unique_ptr<Position> make_constant_terms(const PositionTerms& terms, std::shared_ptr<const void> owner,
                                              const std::string& model_dir) {
  return std::make_unique<ConstantTerms>(terms, std::move(owner), model_dir);
}

std::unique_ptr<Position> Position::open(const ModelConfig& config, const std::string& model_dir,
                                         const Weights& weights, const std::string& prefix,
                                         const std::function<void(const std::string&)>& warn) {
  const bool all_rotate = std::ranges::none_of(config.layers, [](const LayerSpec& each) { return each.rotation < 0; });
  if (config.rotations.size() == 1 && all_rotate) return make_rotary(RotaryRows(config.rotations[0]));
  if (!config.rotations.empty()) return make_layer_rotations(config.rotations, config.layers);
  std::vector<std::unique_ptr<Position>> parts;
  if (has_learned_positions(config)) {
    MappedRows rows = weights.mapped_rows(prefix + kLearnedPositions);
    parts.push_back(make_learned(std::move(rows), config.embedding_size, config.positions));
  }
  if (config.positions.relative != PositionSpec::Relative::kNone)
    parts.push_back(make_relative(config, model_dir, weights, prefix));
  if (!parts.empty()) return std::make_unique<Combination>(std::move(parts), false);
  if (auto stored = open_stored_table(config, model_dir, weights, prefix, warn)) return stored;
  return Opening(config, model_dir, weights).open();
}

}  // namespace rf::engine
