// Rows of a cache (rf/nn/cache.h).
#include "rf/nn/cache.h"

#include "rf/io/error.h"

namespace rf::nn {

void select_rows(KeyValueCache& cache, const at::Tensor& rows_N) {
  const auto select = [&](at::Tensor& of_rows) {
    if (of_rows.defined() && of_rows.size(0) == cache.batch) of_rows = of_rows.index_select(0, rows_N);
  };
  // [1, ..]: the same for all rows.
  const auto select_unless_shared = [&](at::Tensor& of_rows) {
    if (of_rows.defined() && of_rows.size(0) > 1) of_rows = of_rows.index_select(0, rows_N);
  };
  for (KeyValueCache::Layer& layer : cache.layers) {
    if (!layer.key_BSHD.defined()) fail("cache", "rows must be those of softmax attention, got linear attention's");
    select(layer.key_BSHD);
    select(layer.value_BSHD);
    select(layer.token_numbers_BSN);
    select(layer.cross_key_BSHD);
    select(layer.cross_value_BSHD);
  }
  select_unless_shared(cache.positions_BS);
  select(cache.sequences_BS);
  select(cache.encoder_mask_BS);
  cache.batch = rows_N.size(0);
}

}  // namespace rf::nn
