// C-14 and C-15 (spec R-ABS-06, R-ABS-08): claims about the sinusoid of Eq. 4, measured on the encoding "sinusoidal",
// and for comparison the change of a vector by RoPE.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>

#include "experiment.h"
#include "rf/nn/encoding.h"
#include "tensors.h"

namespace rf::reproduce {

namespace {

struct SinusoidSettings {
  int64_t width = 64, positions = 10000;
  std::vector<int64_t> shifts = {1, 5, 100};
  Seeds seeds = {1};
  RF_MEMBERS(SinusoidSettings, width, positions, shifts, seeds)
};

// [T,E].
at::Tensor sinusoid(const at::Tensor& positions, int64_t width) {
  const auto encoding = nn::make_encoding({"sinusoidal", "{}"}, {.input_size = width});
  return encoding->input(nn::make_positions(positions).query, at::kDouble)[0];
}

// The smallest distance between two different rows.
double smallest_distance(const at::Tensor& rows_TE) {
  constexpr int64_t kBlock = 256;
  double smallest = HUGE_VAL;
  for (int64_t begin = 0; begin < rows_TE.size(0); begin += kBlock) {
    const at::Tensor block = rows_TE.slice(0, begin, begin + kBlock);
    at::Tensor distances = at::cdist(block, rows_TE, 2.0, /*compute_mode=*/2);  // no products, which would cancel
    distances.narrow(1, begin, block.size(0)).fill_diagonal_(HUGE_VAL);
    smallest = std::min(smallest, distances.min().item<double>());
  }
  return smallest;
}

// Largest difference between the rows moved by `shift` and a matrix of the shift alone times the rows.
double shift_residual(const at::Tensor& rows_TE, int64_t shift) {
  const int64_t tokens = rows_TE.size(0) - shift;
  const at::Tensor pairs = rows_TE.unflatten(1, {-1, 2});  // (sin, cos)
  const at::Tensor sin = pairs.slice(0, 0, tokens).select(2, 0), cos = pairs.slice(0, 0, tokens).select(2, 1);
  const at::Tensor angle = static_cast<double>(shift) * frequencies(rows_TE.size(1));
  const at::Tensor moved =
      at::stack({angle.cos() * sin + angle.sin() * cos, angle.cos() * cos - angle.sin() * sin}, 2).flatten(1);
  return largest(rows_TE.slice(0, shift) - moved);
}

// How much the change that a position makes differs between two tokens, largest element over the positions.
double change_by_token(const at::Tensor& tokens_2E, const at::Tensor& positions, bool rotate) {
  const at::Tensor x_T2E = tokens_2E.unsqueeze(0).expand({positions.size(0), 2, tokens_2E.size(1)}).contiguous();
  const at::Tensor placed =
      rotate ? rotated(x_T2E, positions) : x_T2E + sinusoid(positions, tokens_2E.size(1)).unsqueeze(1);
  const at::Tensor change_T2E = placed - x_T2E;
  return largest(change_T2E.select(1, 0) - change_T2E.select(1, 1));
}

Result run_sinusoid(const SinusoidSettings& settings, const Context&) {
  const int64_t width = settings.width, count = settings.positions;
  const at::Tensor positions = integers(0, count), rows = sinusoid(positions, width);
  at::manual_seed(settings.seeds[0]);
  const at::Tensor tokens_2E = at::randn({2, width}, at::kDouble);
  const double smallest = smallest_distance(rows), bound = largest(rows);
  const double other_length = largest(sinusoid(integers(0, 64), width) - rows.slice(0, 0, 64));
  Result result{.columns = {"quantity", "value"}, .rows = {}};
  result.rows = {{fmt::format("smallest distance of two of {} rows", count), smallest},
                 {"largest element", bound},
                 {"difference of the first 64 rows in a shorter sequence", other_length}};
  double worst_shift = 0;
  for (const int64_t shift : settings.shifts) {
    const double residual = shift_residual(rows, shift);
    result.rows.push_back({fmt::format("error of the linear map for a shift by {}", shift), residual});
    worst_shift = std::max(worst_shift, residual);
  }
  const double added = change_by_token(tokens_2E, positions, false);
  const double turned = change_by_token(tokens_2E, positions, true);
  result.rows.push_back({"change by a position, difference between two tokens: sinusoid", added});
  result.rows.push_back({"change by a position, difference between two tokens: RoPE", turned});
  result.findings = {{"C-14", smallest > 1e-3 && bound <= 1 && other_length == 0 && worst_shift <= 1e-10,
                      fmt::format("rows differ by at least {:.3f}, elements are at most {:.3f}, the first rows are the "
                                  "same at every length, shifts are linear to {:.1e}",
                                  smallest, bound, worst_shift)},
                     {"C-15", added <= 1e-12 && turned > 1e-3,
                      fmt::format("a position changes two tokens alike to {:.1e} with a sinusoid, and by up to {:.2f} "
                                  "differently with RoPE",
                                  added, turned)}};
  return result;
}

}  // namespace

Experiment sinusoid() {
  return {.name = "sinusoid",
          .spec = "R-ABS-06, R-ABS-08",
          .title = "What the sinusoid is said to be",
          .claims = {"C-14", "C-15"},
          .expected =
              "All rows differ by more than 1e-3, no element exceeds 1, rows do not depend on the length, a "
              "shift is one linear map to 1e-10; what a position adds is the same for two tokens to 1e-12, "
              "what RoPE changes differs by more than 1e-3.",
          .budget = "seconds",
          .method = run_sinusoid,
          .kind = Kind::kMathematics};
}

}  // namespace rf::reproduce
