// Queries and keys for encodings (read_vectors.h).
#include "read_vectors.h"

#include <ATen/ops/repeat_interleave.h>

#include "rf/io/error.h"

namespace rf::nn {

ReadVectors read_vectors(const char* where, const Projections& given, int64_t head_dim) {
  const at::Tensor &q_BTHD = given.query_BTHD, &k_BSHD = given.key_BSHD;
  if (q_BTHD.size(3) != head_dim) {
    fail(where, "queries must have head_dim {} numbers, got {}", head_dim, q_BTHD.size(3));
  }
  const int64_t group = q_BTHD.size(2) / k_BSHD.size(2);
  const at::ScalarType dtype = ops::row_dtype(q_BTHD.scalar_type());
  return {q_BTHD.to(dtype), (group == 1 ? k_BSHD : k_BSHD.repeat_interleave(group, 2)).to(dtype)};
}

}  // namespace rf::nn
