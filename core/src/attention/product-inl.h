// Products of a tile in the element type that the problem uses, and the product for raw scores.
#if defined(RF_CORE_ATTENTION_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RF_CORE_ATTENTION_PRODUCT_INL_H_
#undef RF_CORE_ATTENTION_PRODUCT_INL_H_
#else
#define RF_CORE_ATTENTION_PRODUCT_INL_H_
#endif

#include "attention/problem.h"
#include "attention/sides-inl.h"
#include "attention/tile-inl.h"
#include "common/amx_product-inl.h"
#include "common/rows_ahead.h"
#include "common/tile_product-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

// Shared by all products of a kernel.
struct ProductSpace {
  RowsAhead ahead;
  AmxTiles amx;
  // A product without operands.
  Product product() {
    Product p;
    p.ahead = &ahead;
    p.amx = &amx;
    return p;
  }
};

// A product of the element type that the problem uses.
HWY_INLINE void multiply_for(const AttentionProblem& problem, const Product& p) {
#if RF_HAVE_BF16_INSTRUCTION
  if (uses_bf16_pairs(problem)) return problem.amx ? multiply_in_amx(p) : multiply<Bf16PairElements>(p);
#else
  (void)problem;
#endif
  multiply<FloatElements>(p);
}

// Everything in a score's bracket except the scale and G; columns: `inner`, or `width` without a . c.
inline HWY_NOINLINE void raw_scores(const AttentionProblem& problem, const QuerySide& queries, const KeySide& keys,
                                    const Start& start, Product p, float* tile, int64_t columns) {
  p.start = start.rows;
  p.start_row = start.stride;
  p.c = tile;
  p.c_row = p.b_step = kQueryTile;
  p.b = queries.columns;
  p.rows = keys.span.count;
  p.vectors = (queries.span.count + kLanes - 1) / kLanes;
  const bool pairs = uses_bf16_pairs(problem);
  p.a = pairs ? static_cast<const void*>(keys.row_pairs) : keys.rows;
  p.a_row = pairs ? problem.inner / 2 : problem.inner;
  p.depth = pairs ? columns / 2 : columns;
  p.a_step = 1;
  multiply_for(problem, p);
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#endif
