// Shared by the three passes of linear attention: features in work space, and products over a triangle of the pairs of
// a chunk:
//
//            keys                              kLower: key <= query, rows are queries      kUpper: rows are keys
//   queries  [ x . . . ]
//            [ x x . . ]   a slab of 16 rows takes the columns up to its last (kUpper: from its first) row, and the
//            [ x x x . ]   part across the diagonal within the slab is set to 0
//            [ x x x x ]
#if defined(RF_CORE_LINEAR_ATTENTION_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RF_CORE_LINEAR_ATTENTION_SUMS_INL_H_
#undef RF_CORE_LINEAR_ATTENTION_SUMS_INL_H_
#else
#define RF_CORE_LINEAR_ATTENTION_SUMS_INL_H_
#endif

#include <algorithm>

#include "common/arena.h"
#include "common/element.h"
#include "common/rows-inl.h"
#include "common/tile_product-inl.h"
#include "hwy/highway.h"
#include "linear_attention/problem.h"
#include "linear_attention/running_sums-inl.h"
#include "rope/rotate_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

// A as multiply() reads it: element (i, t) is data[i * row + t * step].
struct Left {
  const float* data;
  int64_t row, step;
};
inline Left rows_of(const float* data, int64_t stride) { return {data, stride, 1}; }
inline Left columns_of(const float* data, int64_t stride) { return {data, 1, stride}; }

// c = start + a b; rows of b and c have a stride of `stride` floats.
inline void multiply_into(const Left& a, const float* b, int64_t stride, int64_t rows, int64_t columns, int64_t depth,
                          const float* start, int64_t start_row, float* c, RowsAhead* ahead = nullptr) {
  Product p;
  p.a = a.data;
  p.a_row = a.row;
  p.a_step = a.step;
  p.b = b;
  p.b_step = p.c_row = stride;
  p.start = start;
  p.start_row = start_row;
  p.c = c;
  p.rows = rows;
  p.vectors = (columns + kLanes - 1) / kLanes;
  p.depth = depth;
  p.ahead = ahead;
  multiply<FloatElements>(p);
}

// e^x for x up to about 0; 0 below -87.
HWY_INLINE FloatVec exp_below_zero(FloatVec x) {
  const FloatTag d;
  const auto log2e = hn::Set(d, kLog2e);
  const auto power = hn::Mul(x, log2e);
  const auto rest = hn::MulAdd(x, hn::Set(d, 1.925963033500e-8f), hn::MulSub(x, log2e, power));
  const auto y = exp2(power);
  return hn::MulAdd(y, hn::Mul(rest, hn::Set(d, 0.693147180559945309f)), y);
}

enum class Triangle { kLower, kUpper };

inline constexpr int64_t kSlab = kRowFloats;
inline constexpr int64_t kPairFloats = kChunk * kChunk;

struct Slab {
  int64_t first, rows;   // rows of the triangle
  int64_t begin, count;  // columns
  Slab(Triangle triangle, int64_t row, int64_t tokens)
      : first(row),
        rows(std::min(kSlab, tokens - row)),
        begin(triangle == Triangle::kLower ? 0 : row),
        count(triangle == Triangle::kLower ? row + rows : tokens - row) {}
};

// pairs[i][j] = rows[i] . columns[.][j] within the triangle; columns: [depth][kChunk].
inline void multiply_pairs(Triangle triangle, int64_t tokens, const float* rows, int64_t stride, int64_t depth,
                           const float* columns, float* pairs) {
  for (int64_t row = 0; row < tokens; row += kSlab) {
    const Slab slab(triangle, row, tokens);
    multiply_into(rows_of(rows + row * stride, stride), columns + slab.begin, kChunk, slab.rows, slab.count, depth,
                  nullptr, 0, pairs + row * kChunk + slab.begin);
    for (int64_t i = row; i < row + slab.rows; ++i) {
      float* diagonal = pairs + i * kChunk + i;
      if (triangle == Triangle::kLower) {
        std::fill(diagonal + 1, diagonal + (row + slab.rows - i), 0.0f);
      } else {
        std::fill(diagonal - (i - row), diagonal, 0.0f);
      }
    }
  }
}

// pairs[i][j] *= e^-|M_i - M_j|.
inline HWY_NOINLINE void shrink_pairs(Triangle triangle, int64_t tokens, const Decays& decays, float* pairs) {
  const FloatTag d;
  constexpr float kLowestPower = -120;  // whose exponential is 0
  for (int64_t row = 0; row < tokens; row += kSlab) {
    const Slab slab(triangle, row, tokens);
    for (int64_t i = row; i < row + slab.rows; ++i) {
      const auto own = hn::Set(d, decays.exponents[i]);
      for (int64_t j = slab.begin; j < slab.begin + slab.count; j += kLanes) {
        const auto gap = hn::Neg(hn::AbsDiff(hn::LoadU(d, decays.exponents + j), own));
        float* to = pairs + i * kChunk + j;
        hn::StoreU(hn::Mul(hn::LoadU(d, to), exp_below_zero(hn::Max(gap, hn::Set(d, kLowestPower)))), d, to);
      }
    }
  }
}

// to[i] += sum_j pairs[i][j] rows[j].
inline void add_pairs(Triangle triangle, int64_t tokens, const float* pairs, const float* rows, int64_t stride,
                      float* to) {
  for (int64_t row = 0; row < tokens; row += kSlab) {
    const Slab slab(triangle, row, tokens);
    float* c = to + row * stride;
    multiply_into(rows_of(pairs + row * kChunk + slab.begin, kChunk), rows + slab.begin * stride, stride, slab.rows,
                  stride, slab.count, c, stride, c);
  }
}

// Features of a chunk's tokens, [kChunk][width]: rotated, and as used in the denominator. One array if these are the
// same.
struct FeatureRows {
  float *rotated, *under;

  FeatureRows(const LinearProblem& problem, const rf_attention_rotation& rotation, Arena& arena)
      : rotated(arena.take<float>(kChunk * problem.width)),
        under(is_plain(problem, rotation) ? arena.take<float>(kChunk * problem.width) : rotated) {}
  static bool is_plain(const LinearProblem& problem, const rf_attention_rotation& rotation) {
    return rotation.cos != nullptr && problem.args.denominator == RF_DENOMINATOR_PLAIN;
  }
};

// Rows of x to features in place; the zeros behind `features` stay.
inline HWY_NOINLINE void map_rows(const LinearProblem& problem, int64_t rows, float* x) {
  const FloatTag d;
  const rf_linear_attention_args& args = problem.args;
  if (args.feature_map == RF_FEATURES_GIVEN) return;
  const auto zero = hn::Zero(d);
  for (int64_t r = 0; r < rows; ++r, x += problem.width) {
    for (int64_t i = 0; i < args.features; i += kLanes) {
      const auto value = hn::LoadU(d, x + i);
      auto y = hn::Max(value, zero);
      if (args.feature_map == RF_FEATURES_ELU_PLUS_ONE) {
        const auto above = hn::Add(value, hn::Set(d, 1.0f));
        y = hn::IfThenElse(hn::Gt(value, zero), above, exp_below_zero(value));
      }
      hn::StoreU(y, d, x + i);
    }
    std::fill(x + args.features, x + problem.width, 0.0f);
  }
}

// gradient *= the map's slope, which follows from the features: for elu + 1, the feature itself up to 1.
inline HWY_NOINLINE void multiply_by_slopes(const LinearProblem& problem, const float* features, int64_t rows,
                                            float* gradient) {
  const FloatTag d;
  const auto one = hn::Set(d, 1.0f);
  const bool relu = problem.args.feature_map == RF_FEATURES_RELU;
  for (int64_t i = 0; i < rows * problem.width; i += kLanes) {
    const auto feature = hn::LoadU(d, features + i), before = hn::LoadU(d, gradient + i);
    const auto slope = relu ? hn::IfThenElseZero(hn::Gt(feature, hn::Zero(d)), one) : hn::Min(feature, one);
    hn::StoreU(hn::Mul(before, slope), d, gradient + i);
  }
}

// Prefetches the rows that the next chunk reads and writes, between the blocks of a product.
inline constexpr int64_t kBlocksOfProduct = 16;  // of AVX-512 with 64 features and value dimensions

inline void add_rotation_ahead(const rf_attention_rotation& rotation, int64_t b, int64_t tokens, int64_t first,
                               int64_t count, RowsAhead& ahead) {
  if (rotation.cos == nullptr) return;
  const int64_t begin = ((rotation.batch == 1 ? 0 : b) * tokens + first);
  for (const void* rows : {rotation.cos, rotation.sin}) {
    add_rows_ahead<Access::kRead>({static_cast<const char*>(rows), rotation.pairs}, begin, count, rotation.pairs,
                                  sizeof(float), ahead);
  }
}

inline void add_queries_ahead(const rf_linear_attention_args& x, int64_t b, int64_t h, const Chunk& next,
                              RowsAhead& ahead) {
  const int64_t element = element_bytes(x.dtype);
  add_rotation_ahead(x.query, b, x.queries, next.first_query, next.queries, ahead);
  add_rows_ahead<Access::kWrite>(out_rows(x.dtype, x, b, h), next.first_query, next.queries, x.value_dim, element,
                                 ahead);
  add_rows_ahead<Access::kRead>(query_rows(x, b, h), next.first_query, next.queries, x.features, element, ahead);
  ahead.spread(kBlocksOfProduct);
}

inline void add_keys_ahead(const rf_linear_attention_args& x, int64_t b, int64_t key_head, const Chunk& next,
                           RowsAhead& ahead) {
  const int64_t element = element_bytes(x.dtype);
  add_rows_ahead<Access::kRead>(value_rows(x, b, key_head), next.first_key, next.keys, x.value_dim, element, ahead);
  if (x.key.cos != x.query.cos || next.queries == 0) {
    add_rotation_ahead(x.key, b, x.keys, next.first_key, next.keys, ahead);
  }
  add_rows_ahead<Access::kRead>(key_rows(x, b, key_head), next.first_key, next.keys, x.features, element, ahead);
  ahead.spread(kBlocksOfProduct);
}

// Rows of masked tokens become zeros.
inline void clear_masked(const rf_linear_attention_args& x, int64_t b, int64_t first, int64_t count, int64_t width,
                         float* rows) {
  if (x.key_mask == nullptr) return;
  const uint8_t* mask = x.key_mask + b * x.key_mask_stride_b;
  for (int64_t i = 0; i < count; ++i) {
    if (mask[(first + i) * x.key_mask_stride_s] == 0) std::fill_n(rows + i * width, width, 0.0f);
  }
}

inline void rotate_features(const LinearProblem& problem, const rf_attention_rotation& rotation, int64_t b,
                            int64_t tokens, int64_t first, int64_t count, const FeatureRows& to) {
  if (to.rotated != to.under) std::copy_n(to.under, count * problem.width, to.rotated);
  rotate_rows(rotation, problem.args.layout, RotationDirection::kForward, b, tokens, first, count, to.rotated,
              problem.width);
}

inline void load_queries(const LinearProblem& problem, int64_t b, int64_t h, const Chunk& chunk,
                         const FeatureRows& to) {
  const rf_linear_attention_args& x = problem.args;
  load_rows(x.dtype, query_rows(x, b, h), chunk.first_query, chunk.queries, x.features, to.under, problem.width);
  map_rows(problem, chunk.queries, to.under);
  rotate_features(problem, x.query, b, x.queries, chunk.first_query, chunk.queries, to);
}

// values: [kChunk][value_width].
inline void load_keys(const LinearProblem& problem, int64_t b, int64_t key_head, const Chunk& chunk,
                      const FeatureRows& to, float* values) {
  const rf_linear_attention_args& x = problem.args;
  load_rows(x.dtype, key_rows(x, b, key_head), chunk.first_key, chunk.keys, x.features, to.under, problem.width);
  map_rows(problem, chunk.keys, to.under);
  clear_masked(x, b, chunk.first_key, chunk.keys, problem.width, to.under);
  rotate_features(problem, x.key, b, x.keys, chunk.first_key, chunk.keys, to);
  load_rows(x.dtype, value_rows(x, b, key_head), chunk.first_key, chunk.keys, x.value_dim, values, problem.value_width);
  clear_masked(x, b, chunk.first_key, chunk.keys, problem.value_width, values);
}

// Shared by the passes that sum keys and answer queries, kForward and kQueryGradient.
struct KeysPass {
  KeysPass(const LinearProblem& linear_problem, LinearPass pass, int64_t sequence, int64_t head, Arena& arena)
      : problem(linear_problem),
        x(problem.args),
        key_head(head),
        keys(problem, x.key, arena),
        values(arena.take<float>(kChunk * problem.value_width)),
        turned(pass == LinearPass::kForward ? keys.rotated : values),
        turned_width(pass == LinearPass::kForward ? problem.width : problem.value_width),
        columns(arena.take<float>(turned_width * kChunk)),
        prefix(arena.take<float>(kChunk * problem.width)),
        pairs(arena.take<float>(kPairFloats)),
        zeros(arena.take<float>(std::max(problem.width, problem.value_width))),
        sums(problem, pass, sequence, head, arena),
        b(sums.of.entry) {}

  void take_keys(const Chunk& chunk, bool answers) const {
    const bool meets_queries = answers && chunk.paired();
    load_keys(problem, b, key_head, chunk, keys, values);
    sum_prefixes(sums.row.total, keys.under, chunk.keys, problem.width, sums.decays, sums.row.added,
                 meets_queries ? prefix : nullptr);
    if (meets_queries) transpose(turned, turned_width, chunk.keys, turned_width, columns, kChunk);
  }
  // z, which the denominator of the chunk's query i reads.
  const float* key_sum(const Chunk& chunk, int64_t i) const {
    return chunk.paired() ? prefix + i * problem.width : sums.row.total;
  }

  const LinearProblem& problem;
  const rf_linear_attention_args& x;
  int64_t key_head;
  FeatureRows keys;
  float* values;        // [kChunk][value_width]
  const float* turned;  // [kChunk][turned_width]: R g in the forward, v in the backward
  int64_t turned_width;
  float* columns;  // the same, [turned_width][kChunk]
  float* prefix;   // [kChunk][width]: z at each key
  float* pairs;    // [queries][keys]
  float* zeros;
  PassSums sums;  // S or S^T, and z
  int64_t b;
  RowsAhead ahead;
};

// pass.answer(chunk, the next one, head) and pass.add_keys(chunk, the next one) are the derived pass's.
template <class Pass>
void take_keys_and_answer(Pass& pass, const Chunk& chunk, const Chunk& next, bool answers) {
  pass.sums.load(chunk);
  if (chunk.keys > 0) pass.take_keys(chunk, answers);
  for (int64_t j = 0; answers && chunk.queries > 0 && j < pass.problem.group; ++j) {
    pass.answer(chunk, next, pass.key_head * pass.problem.group + j);
  }
  if (chunk.keys > 0) pass.add_keys(chunk, next);
}

// Turns the gradients of rotated features and of the denominator's features (`plain`, nullptr if they were already
// added to `rotated`) into gradients of the caller's arrays, in place of `rotated`. features: before their rotation;
// NULL: recomputed in `scratch`, [kChunk][width].
inline void to_given(const LinearProblem& problem, const rf_attention_rotation& rotation, int64_t b, int64_t tokens,
                     int64_t first, int64_t count, const HeadRows& given, const float* features, const float* plain,
                     float* rotated, float* scratch) {
  const rf_linear_attention_args& x = problem.args;
  rotate_rows(rotation, x.layout, RotationDirection::kTransposed, b, tokens, first, count, rotated, problem.width);
  if (plain != nullptr) add_scaled(1, plain, count * problem.width, rotated);
  if (x.feature_map == RF_FEATURES_GIVEN) return;
  if (features == nullptr) {
    load_rows(x.dtype, given, first, count, x.features, scratch, problem.width);
    map_rows(problem, count, scratch);
    features = scratch;
  }
  multiply_by_slopes(problem, features, count, rotated);
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#endif
