// Properties of the rotation, each measured on the operator roformer::rope with random vectors:
//
//   relative-score   C-02  scores depend on the difference of positions (spec R-ROPE-01, R-ROPE-05)
//   norm             C-06  the rotation is orthogonal (R-ROPE-08)
//   bilinear         C-27  scores are bilinear forms R_{n-m} between query and key: nothing is added
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>

#include "experiment.h"
#include "rf/nn/encoding.h"
#include "tensors.h"

namespace rf::reproduce {

namespace {

// Bounds in float64 and float32, relative to |q| |k|.
constexpr double kFloat64Bound = 1e-12, kFloat32Bound = 2e-6;

struct Pairs {
  at::Tensor query_PD, key_PD;
};
Pairs random_pairs(int64_t pairs, int64_t head_dim, uint64_t seed) {
  at::manual_seed(seed);
  const at::Tensor query_PD = at::randn({pairs, head_dim}, at::kDouble);
  return {query_PD, at::randn({pairs, head_dim}, at::kDouble)};
}

// What a sinusoid adds at each position, [T,1,D].
at::Tensor sinusoid_T1D(const at::Tensor& positions, int64_t width) {
  const auto encoding = nn::make_encoding({"sinusoidal", "{}"}, {.input_size = width});
  return encoding->input(nn::make_positions(positions).query, at::kDouble)[0].unsqueeze(1);
}

enum class How { kRotated, kAdded };

// Each pair's vectors at each position, [T,P,D]: rotated, or with a sinusoid added.
at::Tensor placed_TPD(const at::Tensor& x_PD, const at::Tensor& positions, How how) {
  const at::Tensor x_TPD = x_PD.unsqueeze(0).expand({positions.size(0), x_PD.size(0), x_PD.size(1)});
  if (how == How::kAdded) return x_TPD + sinusoid_T1D(positions, x_PD.size(1));
  return rotated(x_TPD.contiguous(), positions);
}

// Score of every pair with its query at each position m and its key at each n, over |q| |k|: [P,T,T].
at::Tensor scores_PTT(const Pairs& pairs, const at::Tensor& positions, How how) {
  const at::Tensor query_PTD = placed_TPD(pairs.query_PD, positions, how).transpose(0, 1).to(at::kDouble);
  const at::Tensor key_PTD = placed_TPD(pairs.key_PD, positions, how).transpose(0, 1).to(at::kDouble);
  const at::Tensor norms_P = pairs.query_PD.to(at::kDouble).norm(2, 1) * pairs.key_PD.to(at::kDouble).norm(2, 1);
  return at::matmul(query_PTD, key_PTD.transpose(1, 2)) / norms_P.view({-1, 1, 1});
}

// R-ROPE-05: the sum over pairs of (q_a k_a + q_b k_b) cos(r theta) + (q_a k_b - q_b k_a) sin(r theta), over |q| |k|.
at::Tensor closed_form_PTT(const Pairs& pairs, const at::Tensor& positions) {
  const auto even = [](const at::Tensor& x) { return x.slice(1, 0, c10::nullopt, 2); };
  const auto odd = [](const at::Tensor& x) { return x.slice(1, 1, c10::nullopt, 2); };
  const at::Tensor &q = pairs.query_PD, &k = pairs.key_PD;
  const at::Tensor real = even(q) * even(k) + odd(q) * odd(k), imaginary = even(q) * odd(k) - odd(q) * even(k);
  const at::Tensor distance_TT = (positions.unsqueeze(1) - positions.unsqueeze(0)).to(at::kDouble);
  const at::Tensor angle_TTI = distance_TT.unsqueeze(2) * frequencies(q.size(1));
  const auto sum = [](const at::Tensor& factors_PI, const at::Tensor& waves_TTI) {
    return at::einsum("pi,mni->pmn", {factors_PI, waves_TTI});
  };
  return (sum(real, angle_TTI.cos()) + sum(imaginary, angle_TTI.sin())) /
         (q.norm(2, 1) * k.norm(2, 1)).view({-1, 1, 1});
}

struct PairSettings {
  int64_t pairs = 64, head_dim = 64, positions = 64;
  Seeds seeds = {1};
  RF_MEMBERS(PairSettings, pairs, head_dim, positions, seeds)
};

struct RelativeSettings {
  int64_t pairs = 64, head_dim = 64, positions = 64;
  Seeds seeds = {1};
  std::vector<int64_t> shifts = {1, 7, 1000, 100000};
  RF_MEMBERS(RelativeSettings, pairs, head_dim, positions, seeds, shifts)
};

Result run_relative(const RelativeSettings& settings, const Context&) {
  const Pairs pairs = random_pairs(settings.pairs, settings.head_dim, settings.seeds[0]);
  const Pairs pairs32 = {pairs.query_PD.to(at::kFloat), pairs.key_PD.to(at::kFloat)};
  const at::Tensor positions = integers(0, settings.positions);
  const at::Tensor scores = scores_PTT(pairs, positions, How::kRotated);
  const at::Tensor scores32 = scores_PTT(pairs32, positions, How::kRotated);
  const at::Tensor added = scores_PTT(pairs, positions, How::kAdded);
  Result result{.columns = {"difference of scores, of |q| |k|", "RoPE, float64", "RoPE, float32", "sinusoid added"},
                .rows = {}};
  double worst = largest(scores - closed_form_PTT(pairs, positions));
  double worst32 = largest(scores32 - closed_form_PTT(pairs, positions)), least_added = HUGE_VAL;
  result.rows.push_back({"from the closed form in m - n", worst, worst32, nullptr});
  for (const int64_t shift : settings.shifts) {
    const at::Tensor moved = positions + shift;
    const double by64 = largest(scores_PTT(pairs, moved, How::kRotated) - scores);
    const double by32 = largest(scores_PTT(pairs32, moved, How::kRotated) - scores32);
    const double by_sum = largest(scores_PTT(pairs, moved, How::kAdded) - added);
    result.rows.push_back({fmt::format("after both positions move by {}", shift), by64, by32, by_sum});
    worst = std::max(worst, by64);
    worst32 = std::max(worst32, by32);
    least_added = std::min(least_added, by_sum);
  }
  const at::Tensor from_first = scores[0].select(1, 0);  // of the first pair, its key at 0
  result.series = {{"score of a random pair over |q| |k|, by distance", values(positions), values(from_first)}};
  result.findings = {{"C-02", worst <= kFloat64Bound && worst32 <= kFloat32Bound && least_added > 1e-3,
                      fmt::format("moved or computed from the distance alone, scores differ by {:.1e} (float64) and "
                                  "{:.1e} (float32) of |q| |k|; with an added sinusoid by {:.1e} and more",
                                  worst, worst32, least_added)}};
  return result;
}

struct NormSettings {
  int64_t vectors = 1024, head_dim = 64;
  std::vector<int64_t> positions = {0, 1, 17, 1535, 100000, 1000000};
  Seeds seeds = {1};
  RF_MEMBERS(NormSettings, vectors, head_dim, positions, seeds)
};

Result run_norm(const NormSettings& settings, const Context&) {
  const int64_t head_dim = settings.head_dim;
  const at::Tensor x_PD = random_pairs(settings.vectors, head_dim, settings.seeds[0]).query_PD;
  const at::Tensor x32_PD = x_PD.to(at::kFloat);
  const at::Tensor basis_DD = at::eye(head_dim, at::kDouble);
  const auto change = [](const at::Tensor& before_PD, const at::Tensor& after_PD) {
    return largest(after_PD.to(at::kDouble).norm(2, 1) / before_PD.to(at::kDouble).norm(2, 1) - 1);
  };
  Result result{.columns = {"position", "change of |x|, float64", "change of |x|, float32", "R^T R - I, float64",
                            "change of |x| when a sinusoid is added"},
                .rows = {}};
  double worst = 0, worst32 = 0, worst_matrix = 0, least_added = HUGE_VAL;
  for (const int64_t position : settings.positions) {
    const at::Tensor at_position = at::tensor({position}, at::kLong);
    const double by64 = change(x_PD, placed_TPD(x_PD, at_position, How::kRotated)[0]);
    const double by32 = change(x32_PD, placed_TPD(x32_PD, at_position, How::kRotated)[0]);
    const at::Tensor columns_DD = placed_TPD(basis_DD, at_position, How::kRotated)[0];  // row j: R e_j
    const double matrix = largest(at::matmul(columns_DD, columns_DD.t()) - basis_DD);
    const double added = change(x_PD, placed_TPD(x_PD, at_position, How::kAdded)[0]);
    result.rows.push_back({position, by64, by32, matrix, added});
    worst = std::max(worst, by64);
    worst32 = std::max(worst32, by32);
    worst_matrix = std::max(worst_matrix, matrix);
    least_added = std::min(least_added, added);
  }
  result.findings = {
      {"C-06", worst <= 1e-14 && worst32 <= 1e-6 && worst_matrix <= 1e-14,
       fmt::format("norms change by at most {:.1e} (float64) and {:.1e} (float32), R^T R is I to {:.1e}; "
                   "an added sinusoid changes some norm by {:.1e} or more at every position",
                   worst, worst32, worst_matrix, least_added)}};
  return result;
}

Result run_bilinear(const PairSettings& settings, const Context&) {
  const uint64_t seed = settings.seeds[0];
  const Pairs pairs = random_pairs(settings.pairs, settings.head_dim, seed);
  const Pairs others = random_pairs(settings.pairs, settings.head_dim, seed + 1);
  const at::Tensor positions = integers(0, settings.positions);
  // Scores that are not divided by norms, which would not be linear.
  const auto raw = [&](const at::Tensor& query_PD, How how) {
    const at::Tensor query_PTD = placed_TPD(query_PD, positions, how).transpose(0, 1);
    return at::matmul(query_PTD, placed_TPD(pairs.key_PD, positions, how).permute({1, 2, 0}));
  };
  const auto linearity = [&](How how) {
    const at::Tensor sum = raw(2 * pairs.query_PD - 3 * others.query_PD, how);
    return largest(sum - (2 * raw(pairs.query_PD, how) - 3 * raw(others.query_PD, how))) / largest(sum);
  };
  const auto of_zeros = [&](How how) { return largest(raw(at::zeros_like(pairs.query_PD), how)); };
  const double rope_linear = linearity(How::kRotated), sum_linear = linearity(How::kAdded);
  const double rope_zero = of_zeros(How::kRotated), sum_zero = of_zeros(How::kAdded);
  Result result{.columns = {"of the scores of 2q - 3q'", "RoPE", "sinusoid added"}, .rows = {}};
  result.rows = {{"from 2 score(q) - 3 score(q'), of the largest", rope_linear, sum_linear},
                 {"largest score of a query of zeros", rope_zero, sum_zero}};
  result.findings = {{"C-27", rope_linear <= kFloat64Bound && rope_zero == 0 && sum_linear > 1e-3 && sum_zero > 1e-3,
                      fmt::format("RoPE's scores are linear in the query to {:.1e} and 0 for a query of zeros; with an "
                                  "added sinusoid the terms without query are as large as {:.2f}",
                                  rope_linear, sum_zero)}};
  return result;
}

}  // namespace

Experiment relative_score() {
  return {.name = "relative-score",
          .spec = "R-ROPE-01, R-ROPE-05",
          .title = "Do rotated scores depend on relative positions alone?",
          .claims = {"C-02"},
          .expected =
              "Moving both positions, or computing from their difference alone, changes scores by less than "
              "1e-12 (float64) and 2e-6 (float32) of |q| |k|; with an added sinusoid by more than 1e-3.",
          .budget = "seconds",
          .method = run_relative,
          .kind = Kind::kMathematics};
}

Experiment norm() {
  return {.name = "norm",
          .spec = "R-ROPE-08",
          .title = "Is the rotation orthogonal?",
          .claims = {"C-06"},
          .expected =
              "To position 10^6 norms change by less than 1e-14 (float64) and 1e-6 (float32), and R^T R is I "
              "to 1e-14.",
          .budget = "seconds",
          .method = run_norm,
          .kind = Kind::kMathematics};
}

Experiment bilinear() {
  return {.name = "bilinear",
          .spec = "R-ROPE-05",
          .title = "Does RoPE multiply where others add?",
          .claims = {"C-27"},
          .expected =
              "RoPE's scores are linear in the query to 1e-12 and exactly 0 for a query of zeros; with an "
              "added sinusoid neither holds to 1e-3.",
          .budget = "seconds",
          .method = run_bilinear,
          .kind = Kind::kMathematics};
}

}  // namespace rf::reproduce
