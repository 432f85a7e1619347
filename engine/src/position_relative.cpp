// Terms by distance of encoders of other libraries, made once: MPNet's bias by bucket (Raffel et al. 2019, arXiv
// 1910.10683, section 2.1), ALiBi's penalty (Press et al. 2022, arXiv 2108.12409, section 3) and DeBERTa's rows for
// queries and keys (He et al. 2020, arXiv 2006.03654, Eq. 4; buckets of 2111.09543). A distance is query minus key.
// Buckets are computed in float32, as transformers does.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

#include "position.h"
#include "rf/io/half.h"

namespace rf::engine {

namespace {

using Index = std::function<int64_t(int64_t distance)>;  // a row

constexpr int64_t kFarthest = 128;  // of T5

// Each direction has half of the buckets: the first half of them hold one distance each, the last all from 91 on.
int64_t t5_bucket(int64_t distance) {
  constexpr int64_t kSide = PositionSpec::kBucketsRead / 2, kExact = kSide / 2;
  const int64_t side = distance < 0 ? kSide : 0, far = std::abs(distance);
  if (far < kExact) return side + far;
  const float share = std::log(static_cast<float>(far) / kExact) / std::log(static_cast<float>(kFarthest / kExact));
  return side + std::min(kSide - 1, kExact + static_cast<int64_t>(share * (kSide - kExact)));
}

// A distance, logarithmic beyond half of the buckets; `buckets` 0: the distance unchanged.
int64_t deberta_bucket(int64_t distance, int64_t buckets, int64_t farthest) {
  const int64_t mid = buckets / 2, far = std::abs(distance);
  if (buckets == 0 || far <= mid) return distance;
  const auto divisor = static_cast<float>(mid), most = static_cast<float>(mid - 1);
  const float reach = std::log(static_cast<float>(static_cast<double>(farthest - 1) / static_cast<double>(mid)));
  const float share = std::ceil(std::log(static_cast<float>(far) / divisor) / reach * most);
  const auto bucket = static_cast<int64_t>(share) + mid;
  return distance < 0 ? -bucket : bucket;
}

// Tables of distances lo .. hi; further distances have the rows of the ends.
struct RelativeTerms {
  std::vector<std::vector<float>> rows;
  PositionTerms terms;
  int64_t lo = 0, hi = 0;

  // [heads, hi - lo + 1, width]; row r of head h is source[(r * heads + h) * width ..].
  PositionTerms::Term table(const std::vector<float>& source, int64_t heads, int64_t width, const Index& index) {
    const int64_t count = hi - lo + 1;
    std::vector<float>& to = rows.emplace_back(static_cast<size_t>(heads * count * width));
    for (int64_t d = lo; d <= hi; ++d) {
      const auto row = source.begin() + index(d) * heads * width;
      for (int64_t h = 0; h < heads; ++h)
        std::copy_n(row + h * width, width, to.begin() + (h * count + d - lo) * width);
    }
    return {.shape = {heads, count, width}, .values = to, .lo = lo, .hi = hi};
  }
};

std::shared_ptr<RelativeTerms> bucket_bias(const ModelConfig& config, const Weights& weights,
                                           const std::string& prefix) {
  const auto made = std::make_shared<RelativeTerms>();
  made->terms.layers.resize(static_cast<size_t>(config.num_hidden_layers));
  made->lo = -kFarthest;
  made->hi = kFarthest;
  const int64_t heads = config.num_attention_heads;
  PositionTerms::Term bias = made->table(weights.vector(prefix + kRelativeBias), heads, 1, t5_bucket);
  bias.shape.pop_back();
  made->terms.shared = {{"bias", bias}};
  return made;
}

// Slopes 2^(-8/n), 2^(-16/n), .. if the number of heads n is a power of two. Otherwise the slopes of the next lower
// power of two, then every second slope of the next higher power.
std::vector<double> linear_slopes(const ModelConfig& config) {
  const int64_t heads = config.num_attention_heads;
  const auto below = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  std::vector<double> slopes;
  for (int64_t h = 0; h < heads; ++h) {
    const auto step = static_cast<double>(h < below ? 2 * (h + 1) : 2 * (h - below) + 1);
    slopes.push_back(std::exp2(-4 * step / static_cast<double>(below)));
  }
  return slopes;
}

// -slope |distance|
std::shared_ptr<RelativeTerms> linear_bias(const ModelConfig& config) {
  const auto made = std::make_shared<RelativeTerms>();
  made->terms.layers.resize(static_cast<size_t>(config.num_hidden_layers));
  made->terms.longest = config.max_position_embeddings;
  made->hi = config.max_position_embeddings - 1;
  made->lo = -made->hi;
  const int64_t heads = config.num_attention_heads;
  const std::vector<double> slopes = linear_slopes(config);
  std::vector<float> far(static_cast<size_t>((made->hi + 1) * heads));  // [distance, head]
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t d = 0; d <= made->hi; ++d)
      far[d * heads + h] = static_cast<float>(-slopes[static_cast<size_t>(h)] * static_cast<double>(d));
  }
  PositionTerms::Term bias = made->table(far, heads, 1, [](int64_t distance) { return std::abs(distance); });
  bias.shape.pop_back();
  made->terms.shared = {{"bias", bias}};
  return made;
}

std::shared_ptr<RelativeTerms> disentangled(const ModelConfig& config, const Weights& weights,
                                            const std::string& prefix) {
  const PositionSpec& spec = config.positions;
  const int64_t span = spec.rows / 2, hidden = config.hidden_size, heads = config.num_attention_heads;
  const auto made = std::make_shared<RelativeTerms>();
  const Index index = [&](int64_t distance) {
    return std::clamp(deberta_bucket(distance, spec.buckets, spec.max_distance) + span, int64_t{0}, 2 * span - 1);
  };
  while (index(made->hi) < 2 * span - 1) ++made->hi;
  while (index(made->lo) > 0) --made->lo;
  std::vector<float> relative = weights.vector(prefix + kRelativeRows);
  if (spec.relative_norm) {
    const Norm norm = read_norm(weights, prefix + kRelativeNorm, config, hidden);
    norm(RF_F32, 2 * span, relative.data(), nullptr, relative.data());
  }
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    PositionTerms::Terms& terms = made->terms.layers.emplace_back();
    const auto add = [&](const char* term, const char* own, const char* shared) {
      const char* const name = spec.shared_projections ? shared : own;
      const Linear project = read_linear(
          weights, fmt::format("{}encoder.layer.{}.attention.self.{}", prefix, layer, name), Precision::kFloat32);
      std::vector<float> projected(relative.size());
      project(2 * span, relative.data(), hidden, projected.data());
      terms.emplace(term, made->table(projected, heads, config.head_dim(), index));
    };
    if (spec.content_to_position) add("key_table", "pos_key_proj", "key");
    if (spec.position_to_content) add("query_table", "pos_query_proj", "query");
  }
  return made;
}

// ALiBi of causal models: slope times position of each key, in bfloat16 as Falcon has it, or exact.
class LinearKeyScores : public Position {
 public:
  explicit LinearKeyScores(const ModelConfig& config)
      : slopes_(linear_slopes(config)),
        scale_(1 / std::sqrt(static_cast<double>(config.head_dim()))),
        rounds_(config.positions.falcon_slopes) {}

  void prepare(const Sequences& sequences, PositionRows& rows) const override {
    rows.key_scores.resize(slopes_.size() * static_cast<size_t>(sequences.tokens));
    float* to = rows.key_scores.data();
    for (const double slope : slopes_) {
      for (int64_t t = 0; t < sequences.tokens; ++t) *to++ = score(slope, sequences.positions[t]);
    }
  }
  void set_terms(int64_t, const PositionRows& rows, rf_attention_args& args) const override {
    const auto heads = std::ssize(slopes_), tokens = std::ssize(rows.key_scores) / heads;
    args.key_score = {rows.key_scores.data(), 1, heads, 0, tokens, 0};
  }

 private:
  float score(double slope, int64_t position) const {
    if (!rounds_) return static_cast<float>(slope * static_cast<double>(position));
    const auto rounded = [](float value) { return io::float_of_bf16(io::bf16_of_float(value)); };
    const float product = rounded(static_cast<float>(slope)) * rounded(static_cast<float>(position));
    return static_cast<float>(rounded(product) * scale_);
  }

  std::vector<double> slopes_;
  double scale_;
  bool rounds_;
};

}  // namespace

std::unique_ptr<Position> make_relative(const ModelConfig& config, const std::string& model_dir, const Weights& weights,
                                        const std::string& prefix) {
  using Relative = PositionSpec::Relative;
  const Relative relative = config.positions.relative;
  if (relative == Relative::kLinear && config.is_decoder) return std::make_unique<LinearKeyScores>(config);
  const auto made = relative == Relative::kLinear    ? linear_bias(config)
                    : relative == Relative::kBuckets ? bucket_bias(config, weights, prefix)
                                                     : disentangled(config, weights, prefix);
  return make_constant_terms(made->terms, made, model_dir);
}

}  // namespace rf::engine
