// The biases that FIRE adds to scores, f_h(psi(d) / (psi(F_i) + eps)) for the distance d of a key from query i, where
// psi(x) = log1p(c x) and F_i = max(L, i), and their gradients. In a row of b the argument grows with the distance, so
// the segments of f (UnitSegments) are runs of neighbouring keys, equal for all heads. So b is written, and its
// gradient read, only once, with two or three operations per pair. psi is tabulated by distance if that takes fewer
// evaluations.
//
// Sums over rows are added in parts whose number depends only on the shape, so any number of threads gives the same
// bits.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "rf/nn/positions.h"

namespace rf::nn {

// Sums of rectified linear functions of one variable, as linear pieces:
//
//   f_h(x) = sum_w v_hw relu(u_w x + t_w) = slope_hs x + offset_hs     in segment s
//
// The breakpoints -t_w / u_w are the same for all h. Segment 2k is the open interval below the k-th distinct
// breakpoint, and segment 2k + 1 that breakpoint alone: the units that bend there are 0 with gradient 0, because
// relu'(0) = 0. Each unit is active either from some segment on or up to some segment. So slopes and offsets are
// running sums in one direction each, without subtraction. All values are float64.
class UnitSegments {
 public:
  // u, t: [units]; v: [heads, units]. A value that is not finite makes all results of its heads NaN.
  UnitSegments(const double* u, const double* t, const double* v, int64_t heads, int64_t units);

  int64_t heads() const { return heads_; }
  int64_t segments() const { return 2 * static_cast<int64_t>(breakpoints_.size()) + 1; }
  const std::vector<double>& breakpoints() const { return breakpoints_; }  // distinct, rising
  double slope(int64_t head, int64_t segment) const { return slopes_[head * segments() + segment]; }
  double offset(int64_t head, int64_t segment) const { return offsets_[head * segments() + segment]; }

  struct Gradients {
    std::vector<double> u, t, v;
  };
  // sums, sums_x: [heads, segments], of the gradient of f_h(x) and of that times x, over every x in the segment.
  Gradients gradients(std::vector<double> sums, std::vector<double> sums_x) const;

 private:
  enum class Active { kNever, kAlways, kFrom, kUpTo };
  struct Unit {
    double u, t;
    Active active;
    int64_t segment;  // the first or last active segment
  };

  int64_t heads_;
  std::vector<double> breakpoints_, v_, slopes_, offsets_;
  std::vector<Unit> units_;
};

// Positions of the two sides, [query_batch, queries] and [key_batch, keys]; a batch of 1 applies to every entry.
struct PositionPairs {
  const int64_t *query, *key;
  int64_t query_batch, key_batch, queries, keys;

  int64_t rows() const { return std::max(query_batch, key_batch) * queries; }
  const int64_t* keys_of(int64_t row) const { return key + (key_batch == 1 ? 0 : row / queries * keys); }
  int64_t query_of(int64_t row) const { return query[query_batch == 1 ? row % queries : row]; }
};

// c >= 0 and L >= 0 of psi and F, and eps.
struct Interpolation {
  double c, threshold, eps;

  double psi(double distance) const { return std::log1p(c * distance); }
  double psi_by_c(double distance) const { return distance / (1 + c * distance); }
  double farthest(int64_t query) const {  // NaN if L is NaN
    return threshold < static_cast<double>(query) ? static_cast<double>(query) : threshold;
  }
};

// Keys begin..end-1 of a row, whose arguments fall into one segment of f.
struct KeyRun {
  int64_t begin, end, segment;
};

// psi by distance, for all rows.
template <class Real>
class DistancePsi {
 public:
  DistancePsi(const PositionPairs& pairs, const Interpolation& net) : pairs_(pairs), net_(net) {
    if (pairs.rows() == 0 || pairs.keys == 0) return;
    const auto [key_lo, key_hi] = std::minmax_element(pairs.key, pairs.key + pairs.key_batch * pairs.keys);
    const auto [query_lo, query_hi] = std::minmax_element(pairs.query, pairs.query + pairs.query_batch * pairs.queries);
    const int64_t farthest = std::max({*query_hi - *key_lo, *key_hi - *query_lo, int64_t{0}});
    if (farthest >= std::min(pairs.rows() * pairs.keys, kMaxDistanceRows)) return;
    farthest_ = farthest;
    psi_.resize(2 * farthest + 1);
    psi_by_c_.resize(2 * farthest + 1);
    for (int64_t d = 0; d <= farthest; ++d) {
      psi_[farthest - d] = psi_[farthest + d] = static_cast<Real>(net.psi(static_cast<double>(d)));
      psi_by_c_[farthest - d] = psi_by_c_[farthest + d] = static_cast<Real>(net.psi_by_c(static_cast<double>(d)));
    }
    for (int64_t b = 0; b < pairs.key_batch; ++b) {
      const int64_t* key = pairs.key + b * pairs.keys;
      bool steps = true;
      for (int64_t j = 1; j < pairs.keys; ++j) steps = steps && key[j] - key[0] == j;
      steps_.push_back(steps);
    }
  }

  const PositionPairs& pairs() const { return pairs_; }
  const Interpolation& net() const { return net_; }
  bool has_table() const { return farthest_ >= 0; }
  // Whether the keys of a row have consecutive positions, so the table holds the row's numbers.
  bool steps(int64_t row) const { return has_table() && steps_[pairs_.key_batch == 1 ? 0 : row / pairs_.queries]; }
  int64_t distances() const { return farthest_ + 1; }
  // The number of distance 0; the numbers of distance d are d places before and after it.
  const Real* psi() const { return psi_.data() + farthest_; }
  const Real* psi_by_c() const { return psi_by_c_.data() + farthest_; }

 private:
  PositionPairs pairs_;
  Interpolation net_;
  int64_t farthest_ = -1;
  std::vector<Real> psi_, psi_by_c_;  // by distance, in both directions
  std::vector<bool> steps_;           // of each row of keys
};

// Data that all heads of a row share.
template <class Real>
class InterpolatedRow {
 public:
  InterpolatedRow(const DistancePsi<Real>& table, const UnitSegments& f)
      : table_(table), f_(f), limits_(f.breakpoints().size()), first_(f.segments() + 1) {}

  void compute(int64_t row) {
    const PositionPairs& pairs = table_.pairs();
    const int64_t query = pairs.query_of(row), *key = pairs.keys_of(row);
    const double farthest = table_.net().farthest(query), denominator = table_.net().psi(farthest) + table_.net().eps;
    const bool same = farthest == farthest_;
    farthest_ = farthest;
    denominator_ = denominator;
    if (!same) {
      for (size_t k = 0; k < limits_.size(); ++k) limits_[k] = f_.breakpoints()[k] * denominator;
      first_known_ = false;
    }
    runs_.clear();
    if (table_.steps(row)) {
      psi_ = table_.psi() + (key[0] - query);
      psi_by_c_ = table_.psi_by_c() + (key[0] - query);
      if (!first_known_) find_first_distances();
      add_runs_of_steps(query - key[0], pairs.keys);
    } else {
      gather(query, key, pairs.keys);
      add_runs_of_any(pairs.keys);
    }
  }

  const std::vector<KeyRun>& runs() const { return runs_; }
  const Real* psi() const { return psi_; }            // of each key
  const Real* psi_by_c() const { return psi_by_c_; }  // its derivative
  double denominator() const { return denominator_; }
  double farthest() const { return farthest_; }

 private:
  // The first distance in the given segment or a later one.
  void find_first_distances() {
    const Real *psi = table_.psi(), *end = psi + table_.distances(), *at = psi;
    for (size_t k = 0; k < limits_.size(); ++k) {
      const double limit = limits_[k];
      at = std::partition_point(at, end, [limit](Real x) { return x < limit; });
      first_[2 * k + 1] = at - psi;
      while (at < end && *at <= limit) ++at;
      first_[2 * k + 2] = at - psi;
    }
    first_.front() = 0;
    first_.back() = table_.distances();
    first_known_ = true;
  }

  void add(int64_t begin, int64_t end, int64_t segment) {
    if (begin < end) runs_.push_back({begin, end, segment});
  }

  // Keys j at distance |self - j|.
  void add_runs_of_steps(int64_t self, int64_t keys) {
    const int64_t before = std::clamp<int64_t>(self + 1, 0, keys), segments = f_.segments();  // distance 0 included
    for (int64_t s = segments - 1; s >= 0; --s) {
      add(std::max<int64_t>(0, self - first_[s + 1] + 1), std::min(before, self - first_[s] + 1), s);
    }
    for (int64_t s = 0; s < segments; ++s) {
      add(std::max(before, self + first_[s]), std::min(keys, self + first_[s + 1]), s);
    }
  }

  void gather(int64_t query, const int64_t* key, int64_t keys) {
    gathered_.resize(2 * keys);
    Real *psi = gathered_.data(), *psi_by_c = psi + keys;
    for (int64_t j = 0; j < keys; ++j) {
      const int64_t distance = query - key[j];
      if (table_.has_table()) {
        psi[j] = table_.psi()[distance];
        psi_by_c[j] = table_.psi_by_c()[distance];
      } else {
        const auto apart = static_cast<double>(std::abs(distance));
        psi[j] = static_cast<Real>(table_.net().psi(apart));
        psi_by_c[j] = static_cast<Real>(table_.net().psi_by_c(apart));
      }
    }
    psi_ = psi;
    psi_by_c_ = psi_by_c;
  }

  void add_runs_of_any(int64_t keys) {
    const auto count = static_cast<int64_t>(limits_.size());
    for (int64_t begin = 0, end = 0; begin < keys; begin = end) {
      const double x = psi_[begin];
      const int64_t below = std::lower_bound(limits_.begin(), limits_.end(), x) - limits_.begin();
      const bool on_limit = below < count && limits_[below] == x;
      end = begin + 1;
      if (on_limit) {
        while (end < keys && psi_[end] == x) ++end;
      } else {
        const double lo = below == 0 ? -HUGE_VAL : limits_[below - 1], hi = below == count ? HUGE_VAL : limits_[below];
        while (end < keys && psi_[end] > lo && psi_[end] < hi) ++end;
      }
      add(begin, end, 2 * below + (on_limit ? 1 : 0));
    }
  }

  const DistancePsi<Real>& table_;
  const UnitSegments& f_;
  std::vector<double> limits_;  // the breakpoints of f in terms of psi, not divided
  std::vector<int64_t> first_;
  bool first_known_ = false;
  std::vector<Real> gathered_;
  std::vector<KeyRun> runs_;
  const Real *psi_ = nullptr, *psi_by_c_ = nullptr;
  double farthest_ = -1, denominator_ = 0;
};

// b [B,H,t,S] of f and positions.
template <class Real>
void compute_interpolated_bias(const DistancePsi<Real>& table, const UnitSegments& f, Real* bias) {
  const PositionPairs& pairs = table.pairs();
  if (pairs.keys == 0) return;
  constexpr int64_t kGrainElements = int64_t{1} << 15;
  const int64_t grain = std::max<int64_t>(1, kGrainElements / (pairs.keys * f.heads()));
  at::parallel_for(0, pairs.rows(), grain, [&](int64_t begin, int64_t end) {
    InterpolatedRow<Real> row(table, f);
    for (int64_t r = begin; r < end; ++r) {
      row.compute(r);
      const Real* psi = row.psi();
      for (int64_t h = 0; h < f.heads(); ++h) {
        const int64_t b = r / pairs.queries, i = r % pairs.queries;
        Real* to = bias + ((b * f.heads() + h) * pairs.queries + i) * pairs.keys;
        for (const KeyRun& run : row.runs()) {
          const auto slope = static_cast<Real>(f.slope(h, run.segment) / row.denominator());
          const auto offset = static_cast<Real>(f.offset(h, run.segment));
          for (int64_t j = run.begin; j < run.end; ++j) to[j] = slope * psi[j] + offset;
        }
      }
    }
  });
}

// Sums over a run of a gradient, and of its products with psi and psi's derivative.
struct RunSums {
  double plain = 0, by_psi = 0, by_psi_by_c = 0;
};

template <class Real>
RunSums sum_run(const Real* grad, const Real* psi, const Real* psi_by_c, const KeyRun& run) {
  constexpr int64_t kLanes = 16;
  Real plain[kLanes] = {}, by_psi[kLanes] = {}, by_psi_by_c[kLanes] = {};
  int64_t j = run.begin;
  for (; j + kLanes <= run.end; j += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) {
      plain[l] += grad[j + l];
      by_psi[l] += grad[j + l] * psi[j + l];
      by_psi_by_c[l] += grad[j + l] * psi_by_c[j + l];
    }
  }
  for (int64_t l = 0; j < run.end; ++j, ++l) {
    plain[l] += grad[j];
    by_psi[l] += grad[j] * psi[j];
    by_psi_by_c[l] += grad[j] * psi_by_c[j];
  }
  RunSums sums;
  for (int64_t l = 0; l < kLanes; ++l) {
    sums.plain += plain[l];
    sums.by_psi += by_psi[l];
    sums.by_psi_by_c += by_psi_by_c[l];
  }
  return sums;
}

struct InterpolatedGradients {
  double c = 0, threshold = 0;  // of c >= 0 and L >= 0
  UnitSegments::Gradients f;
};

// grad: of b, [B,H,t,S].
template <class Real>
InterpolatedGradients interpolated_bias_gradients(const DistancePsi<Real>& table, const UnitSegments& f,
                                                  const Real* grad) {
  constexpr int64_t kParts = 32;
  struct Part {
    std::vector<double> sums, sums_x;
    double c = 0, threshold = 0;
  };
  const PositionPairs& pairs = table.pairs();
  const Interpolation& net = table.net();
  const int64_t heads = f.heads(), segments = f.segments();
  std::vector<Part> parts(kParts);
  at::parallel_for(0, kParts, 1, [&](int64_t first_part, int64_t end_part) {
    for (int64_t p = first_part; p < end_part; ++p) {
      Part& part = parts[p];
      part.sums.resize(heads * segments);
      part.sums_x.resize(heads * segments);
      if (pairs.keys == 0) continue;
      InterpolatedRow<Real> row(table, f);
      for (int64_t r = pairs.rows() * p / kParts; r < pairs.rows() * (p + 1) / kParts; ++r) {
        row.compute(r);
        const double denominator = row.denominator(), farthest = row.farthest();
        double by_psi = 0, by_psi_by_c = 0;  // of the gradient of x = psi / denominator
        for (int64_t h = 0; h < heads; ++h) {
          const int64_t b = r / pairs.queries, i = r % pairs.queries;
          const Real* from = grad + ((b * heads + h) * pairs.queries + i) * pairs.keys;
          for (const KeyRun& run : row.runs()) {
            const RunSums sums = sum_run(from, row.psi(), row.psi_by_c(), run);
            part.sums[h * segments + run.segment] += sums.plain;
            part.sums_x[h * segments + run.segment] += sums.by_psi / denominator;
            by_psi += f.slope(h, run.segment) * sums.by_psi;
            by_psi_by_c += f.slope(h, run.segment) * sums.by_psi_by_c;
          }
        }
        const double by_denominator = -by_psi / (denominator * denominator);
        part.c += by_psi_by_c / denominator + by_denominator * net.psi_by_c(farthest);
        const auto query = static_cast<double>(pairs.query_of(r));
        // Gradient of the maximum; equal arguments get one half each, as in torch.
        const double share = net.threshold > query ? 1 : net.threshold == query ? 0.5 : 0;
        if (share > 0) part.threshold += share * by_denominator * net.c / (1 + net.c * farthest);
      }
    }
  });
  InterpolatedGradients grads;
  std::vector<double> sums(heads * segments), sums_x(heads * segments);
  for (const Part& part : parts) {
    grads.c += part.c;
    grads.threshold += part.threshold;
    for (size_t k = 0; k < sums.size(); ++k) {
      sums[k] += part.sums[k];
      sums_x[k] += part.sums_x[k];
    }
  }
  grads.f = f.gradients(std::move(sums), std::move(sums_x));
  return grads;
}

}  // namespace rf::nn
