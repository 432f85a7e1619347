// Logarithmic buckets of distances (distance_buckets.h).
#include "distance_buckets.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "rf/io/error.h"

namespace rf::nn {

namespace {

// An integer of any size, lowest digits first.
using Digits = std::vector<uint32_t>;

void multiply_by_power(Digits& digits, int64_t factor, int64_t exponent) {
  for (int64_t i = 0; i < exponent; ++i) {
    uint64_t carry = 0;
    for (uint32_t& digit : digits) {
      carry += static_cast<uint64_t>(digit) * static_cast<uint64_t>(factor);
      digit = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
    if (carry != 0) digits.push_back(static_cast<uint32_t>(carry));
  }
}

// The sign of steps ln(d / exact) - step ln(farthest / exact): the side of a threshold on which d lies, 0 if d is on
// it. Arguments are below 2^32.
int compare_logs(int64_t d, int64_t exact, int64_t steps, int64_t farthest, int64_t step) {
  const auto log_of = [exact](int64_t x) { return std::log(static_cast<double>(x) / static_cast<double>(exact)); };
  const double difference = static_cast<double>(steps) * log_of(d) - static_cast<double>(step) * log_of(farthest);
  constexpr double kSure = 1e-9;  // far above the error of the line above for at most 1024 steps
  if (std::abs(difference) > kSure) return difference > 0 ? 1 : -1;
  Digits left = {1}, right = {1};  // d^steps exact^step against farthest^step exact^steps
  multiply_by_power(left, d, steps);
  multiply_by_power(left, exact, step);
  multiply_by_power(right, farthest, step);
  multiply_by_power(right, exact, steps);
  if (left.size() != right.size()) return left.size() > right.size() ? 1 : -1;
  const auto [l, r] = std::mismatch(left.rbegin(), left.rend(), right.rbegin());
  return l == left.rend() ? 0 : *l > *r ? 1 : -1;
}

// The bucket of distances 0, 1, .. up to the first in bucket count - 1.
std::vector<int64_t> one_direction(int64_t count, int64_t max_distance) {
  const int64_t exact = count / 2, steps = count - exact;
  std::vector<int64_t> buckets;
  for (int64_t d = 0, bucket = 0; bucket < count - 1; ++d) {
    if (d < exact) {
      bucket = d;
    } else {
      bucket = std::max(bucket, exact);
      while (bucket < count - 1 && compare_logs(d, exact, steps, max_distance, bucket + 1 - exact) >= 0) ++bucket;
    }
    buckets.push_back(bucket);
  }
  return buckets;
}

}  // namespace

RelativeBuckets relative_buckets(io::StrictObject& options, BucketDirections directions) {
  constexpr const char *kCount = "relative_attention_num_buckets", *kDistance = "relative_attention_max_distance";
  const bool both = directions == BucketDirections::kBoth;
  const int64_t count = options.integer(kCount, 32, both ? 4 : 2, 1024);
  if (both && count % 2 != 0) {
    fail("position_encoding", "{} must be even, half for each direction, got {}", options.path_of(kCount), count);
  }
  const int64_t a_direction = both ? count / 2 : count;
  const int64_t max_distance = options.integer(kDistance, 128, a_direction / 2 + 1, int64_t{1} << 20);

  const std::vector<int64_t> past = one_direction(a_direction, max_distance);
  const int64_t farthest = static_cast<int64_t>(past.size()) - 1;
  std::vector<int64_t> rows;
  if (both) {
    for (int64_t d = farthest; d > 0; --d) rows.push_back(a_direction + past[d]);
  }
  rows.insert(rows.end(), past.begin(), past.end());
  return {.count = count,
          .distances = {.rows = at::tensor(rows, at::kLong), .lo = both ? -farthest : 0, .hi = farthest}};
}

ops::DistanceTable symmetric_log_buckets(int64_t buckets, int64_t max_positions) {
  const int64_t exact = buckets / 2, steps = exact - 1;
  std::vector<int64_t> after = {0};  // buckets of distances 0, 1, .. up to the first in bucket `buckets`
  for (int64_t d = 1, bucket = 0; bucket < buckets; ++d) {
    if (d <= exact) {
      bucket = d;
    } else {
      while (compare_logs(d, exact, steps, max_positions - 1, bucket - exact) > 0) ++bucket;
    }
    after.push_back(std::min(bucket, buckets));
  }
  std::vector<int64_t> rows;
  for (size_t d = after.size() - 1; d > 0; --d) rows.push_back(buckets - after[d]);
  for (const int64_t bucket : after) rows.push_back(std::min(buckets + bucket, 2 * buckets - 1));
  const int64_t farthest = static_cast<int64_t>(after.size()) - 1;
  return {.rows = at::tensor(rows, at::kLong), .lo = -farthest, .hi = farthest};
}

}  // namespace rf::nn
