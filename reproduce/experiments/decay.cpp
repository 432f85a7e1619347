// C-04 without training:
//
//   decay              X-01  the bound of Eq. 37, f(r) = mean over j = 1..D/2 of |S_j|, S_j = sum_{i<j} e^{i r theta_i}
//                            (the paper's Figure 2, spec R-FIG-2, R-DEC-05)
//   score-by-distance  X-02  the score itself, of vectors of ones and of independent random ones (R-DEC-04)
//
// Angles come from the product's tables, in float64.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>

#include "experiment.h"
#include "statistics.h"
#include "tensors.h"

namespace rf::reproduce {

namespace {

constexpr size_t kWindow = 32;  // ours: the paper, which says "decays", names no window

// f at each distance.
std::vector<double> bound(const at::Tensor& distances, int64_t head_dim, double base) {
  const ops::Rotation rows = rotation(distances, head_dim, at::kDouble, base);
  return values((rows.cos.cumsum(2).square() + rows.sin.cumsum(2).square()).sqrt().mean(2));
}

// 0, 1, 2, .., then about `steps` per factor of two, and `max_distance`.
at::Tensor spread_distances(int64_t max_distance, int64_t steps) {
  std::vector<int64_t> distances;
  for (double r = 0; r < static_cast<double>(max_distance);) {
    distances.push_back(std::llround(r));
    r = std::max(r + 1, r * std::exp2(1.0 / static_cast<double>(steps)));
  }
  distances.push_back(max_distance);
  return at::tensor(distances, at::kLong);
}

struct DecaySettings {
  std::vector<int64_t> head_dims = {64, 128, 256}, bases = {10, 100, 1000, 10000, 1000000};
  int64_t bases_head_dim = 128, near = 256, far = 65536, saturated_from = 512;
  RF_MEMBERS(DecaySettings, head_dims, bases, bases_head_dim, near, far, saturated_from)
};

struct Shape {
  bool falls = false;  // every window's mean below that of the window before
  int64_t rises = 0;   // steps on which f grows
  std::vector<double> near, means;
};
Shape shape(int64_t head_dim, double base, int64_t near) {
  Shape shape;
  shape.near = bound(integers(0, near + 1), head_dim, base);
  shape.means = window_means(shape.near, kWindow);
  shape.falls = std::is_sorted(shape.means.rbegin(), shape.means.rend()) &&
                std::adjacent_find(shape.means.begin(), shape.means.end()) == shape.means.end();
  for (size_t r = 1; r < shape.near.size(); ++r) shape.rises += shape.near[r] > shape.near[r - 1];
  return shape;
}

Result run_decay(const DecaySettings& settings, const Context&) {
  const int64_t near = settings.near;
  const at::Tensor near_distances = integers(0, near + 1);
  const at::Tensor far_distances = spread_distances(settings.far, 16);
  const std::vector<double> far_x = values(far_distances);
  Result result{.columns = {"head size", "base", "f(0)", fmt::format("f({})", near), "rank correlation with r",
                            "rising steps", "means of 32 fall", "lowest beyond 512", "highest beyond 512"},
                .rows = {}};
  bool falls = true;
  std::string figures;
  const auto add = [&](int64_t head_dim, double base) {
    const Shape found = shape(head_dim, base, near);
    const std::vector<double> far = bound(far_distances, head_dim, base);
    std::vector<double> beyond;
    for (size_t i = 0; i < far.size(); ++i) {
      if (far_x[i] >= static_cast<double>(settings.saturated_from)) beyond.push_back(far[i]);
    }
    const Spread tail = spread(beyond);
    result.rows.push_back({head_dim, base, found.near.front(), found.near.back(),
                           spearman(values(near_distances), found.near), found.rises, found.falls ? "yes" : "no",
                           tail.low, tail.high});
    const std::string name = fmt::format("head size {}, base {}", head_dim, base);
    result.series.push_back({name, values(near_distances), found.near});
    if (base == 10000) result.series.push_back({name + ", far", far_x, far});
    return std::pair{found, tail};
  };
  for (const int64_t head_dim : settings.head_dims) {
    const auto [found, tail] = add(head_dim, 10000);
    falls = falls && found.falls;
    figures += fmt::format(
        "{}head size {}: the means of {} distances go from {:.2f} to {:.2f}, {}; {} of {} steps rise, and beyond {} "
        "tokens f stays between {:.1f} and {:.1f}",
        figures.empty() ? "" : ". ", head_dim, kWindow, found.means.front(), found.means.back(),
        found.falls ? "falling throughout" : "not falling throughout", found.rises, near, settings.saturated_from,
        tail.low, tail.high);
  }
  for (const int64_t base : settings.bases) {
    if (base != 10000) add(settings.bases_head_dim, static_cast<double>(base));
  }
  if (!falls) figures += "; the claim names no window, so means that rise are not its opposite";
  result.findings = {{"C-04", falls, figures}};
  return result;
}

struct ScoreSettings {
  int64_t head_dim = 64, ones_to = 1024, samples = 200000;
  std::vector<int64_t> distances = {0, 1, 10, 100, 1000};
  double variance_bound = 0.02;
  Seeds seeds = {1};
  RF_MEMBERS(ScoreSettings, head_dim, ones_to, samples, distances, variance_bound, seeds)
};

// Scores of a query at each distance from a key, [T]; both are vectors of ones.
std::vector<double> scores_of_ones(const at::Tensor& distances, int64_t head_dim) {
  const at::Tensor one_T1D = at::ones({distances.size(0), 1, head_dim}, at::kDouble);
  return values(rotated(one_T1D, distances).sum(2).squeeze(1));  // the key at 0 is ones
}

// Variance of the score over independent normal queries and keys, divided by its value without rotation, head_dim.
double variance(int64_t distance, int64_t head_dim, int64_t samples) {
  constexpr int64_t kBlock = 20000;
  double sum = 0, squares = 0;
  for (int64_t begin = 0; begin < samples; begin += kBlock) {
    const int64_t count = std::min(kBlock, samples - begin);
    const at::Tensor query_1ND = at::randn({1, count, head_dim}, at::kDouble);
    const at::Tensor key_ND = at::randn({count, head_dim}, at::kDouble);
    const at::Tensor score_N = (rotated(query_1ND, at::tensor({distance}, at::kLong))[0] * key_ND).sum(1);
    sum += score_N.sum().item<double>();
    squares += score_N.square().sum().item<double>();
  }
  const double mean = sum / static_cast<double>(samples);
  return (squares / static_cast<double>(samples) - mean * mean) / static_cast<double>(head_dim);
}

Result run_score(const ScoreSettings& settings, const Context&) {
  const int64_t head_dim = settings.head_dim, samples = settings.samples;
  const at::Tensor distances = integers(0, settings.ones_to + 1);
  const std::vector<double> ones = scores_of_ones(distances, head_dim);
  const double trend = spearman(values(distances), ones);
  at::manual_seed(settings.seeds[0]);
  Result result{.columns = {"distance", "score of ones", "variance of random scores, of that at 0 without rotation"},
                .rows = {}};
  double worst = 0;
  for (const int64_t distance : settings.distances) {
    const double found = variance(distance, head_dim, samples);
    result.rows.push_back({distance, ones.at(static_cast<size_t>(distance)), found});
    worst = std::max(worst, std::abs(found - 1));
  }
  result.series = {{"score of vectors of ones by distance", values(distances), ones}};
  result.findings = {{"X-02", trend < -0.5 && worst < settings.variance_bound,
                      fmt::format("equal vectors: rank correlation of score and distance {:.2f}; independent ones: the "
                                  "variance of the score differs by at most {:.1f} % from its value without rotation",
                                  trend, 100 * worst)}};
  return result;
}

}  // namespace

Experiment decay() {
  return {.name = "decay",
          .spec = "X-01",
          .title = "The bound that decays with distance (Figure 2)",
          .claims = {"C-04"},
          .expected =
              "Means of f over windows of 32 distances fall strictly on 0..256 for heads of 64, 128 and 256; "
              "single steps may rise, and far away f levels off. The window is ours: the claim names none.",
          .budget = "seconds",
          .method = run_decay,
          .kind = Kind::kMeasurement,
          .revision = 3};
}

Experiment score_by_distance() {
  return {.name = "score-by-distance",
          .spec = "X-02",
          .title = "Do scores decay with distance? Vectors of ones, and random ones",
          .claims = {},
          .expected =
              "X-02, a statement of our own beside C-04: the score of vectors of ones falls with the distance on the "
              "whole (rank correlation below -0.5), and the variance of independent vectors' scores is the same at "
              "every distance, to 2 %. It decides nothing of the claim: a rotation keeps the variance of independent "
              "vectors, whatever models learn.",
          .budget = "seconds",
          .method = run_score,
          .kind = Kind::kMathematics,
          .revision = 3};
}

}  // namespace rf::reproduce
