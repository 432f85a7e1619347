// Sequence ids as offsets (packed_sequences.h).
#include "packed_sequences.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <vector>

#include "known_values.h"
#include "rf/nn/devices.h"

namespace rf::nn {

ops::CuSeqlens cu_seqlens_of(const at::Tensor& sequence_ids_BS, int64_t queries) {
  const at::Tensor contiguous = on_cpu(sequence_ids_BS).contiguous();
  const auto* const ids = cpu_data<int64_t>(contiguous, "sequence ids");
  const int64_t keys = contiguous.size(1), total = contiguous.numel();
  std::vector<int64_t> of_queries = {0}, of_keys = {0};
  const auto add = [&](int64_t more_queries, int64_t more_keys) {
    of_queries.push_back(of_queries.back() + more_queries);
    of_keys.push_back(of_keys.back() + more_keys);
  };
  int64_t before = -1;
  for (int64_t first = 0, end = 0; first < total; first = end) {
    const int64_t id = ids[first], begin = first % keys;
    do ++end;
    while (end % keys != 0 && ids[end] == id);
    const int64_t tokens = end - first,
                  own_queries = std::max<int64_t>(0, begin + tokens - std::max(begin, keys - queries));
    if (begin == 0) before = -1;
    if (id < 0) {
      add(own_queries, 0);
      add(0, tokens);
      continue;
    }
    if (id <= before) return {};
    before = id;
    add(own_queries, tokens);
  }
  return {at::tensor(of_queries, at::kLong), at::tensor(of_keys, at::kLong)};
}

}  // namespace rf::nn
