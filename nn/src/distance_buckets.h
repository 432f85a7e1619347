// Tables with one row per bucket of distances: maps each distance, query minus key, to its row, in a DistanceTable with
// rows int64 [hi - lo + 1]. Buckets hold single distances near zero and grow logarithmically farther out. Thresholds
// are exact, computed with integers; published implementations use float32 logarithms and may round a distance on a
// threshold to either side.
#pragma once

#include <cstdint>

#include "rf/io/strict_object.h"
#include "rf/ops/terms.h"

namespace rf::nn {

enum class BucketDirections {
  kBoth,      // half of the buckets for keys after the query
  kPastOnly,  // all buckets for keys at or before the query; keys after it share bucket 0
};

// T5 (Raffel et al. 2020). With n buckets per direction and e = n / 2, distance d >= 0 is in bucket
//   d if d < e,   else min(n - 1, e + floor((n - e) ln(d / e) / ln(max_distance / e))),
// and keys after the query n buckets higher. Keys read: relative_attention_num_buckets = 32 (both directions together),
// relative_attention_max_distance = 128. Throws Error for values without valid buckets.
struct RelativeBuckets {
  int64_t count = 0;
  ops::DistanceTable distances;
};
RelativeBuckets relative_buckets(io::StrictObject& options, BucketDirections directions);

// DeBERTa-v2 (He et al. 2021). With m = buckets / 2, distance d is in bucket
//   d if |d| <= m,   else sign(d) (m + ceil((m - 1) ln(|d| / m) / ln((max_positions - 1) / m))),
// and in row clamp(bucket + buckets, 0, 2 buckets - 1). buckets: even, from 4 to kMaxLogBuckets; max_positions > m + 1.
inline constexpr int64_t kMaxLogBuckets = 1024;
ops::DistanceTable symmetric_log_buckets(int64_t buckets, int64_t max_positions);

}  // namespace rf::nn
