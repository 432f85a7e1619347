// Argument rules of attention over terms (see the header).
#include "attention_checks.h"

#include <cmath>
#include <utility>

#include "argument_checks.h"
#include "element.h"
#include "error.h"
#include "target.h"

namespace rf::core {
namespace {

constexpr const char* kWhere = "attention";
constexpr int64_t kMaxPosition = int64_t{1} << 53;

void check_dtype(const rf_attention_args& x) {
  require(element_bytes(x.dtype) != 0, kWhere, "dtype must be RF_F32, RF_F64, RF_BF16 or RF_F16, got ",
          static_cast<int>(x.dtype));
  const bool loops = x.dtype == RF_F64;
  if (!loops && x.gate.rows != nullptr) throw NotImplemented("[attention] gate must be NULL unless dtype is RF_F64");
  if (!loops && use_reference()) {
    throw NotImplemented("[attention] dtype must be RF_F64 for the reference loops, which RF_KERNEL=ref asks for");
  }
  require(x.dropout >= 0 && x.dropout < 1 - 0x1p-17, kWhere, "dropout must be in [0, 1 - 2^-17), got ", x.dropout);
  if (loops && x.dropout > 0) throw NotImplemented("[attention] dropout must be 0 with dtype RF_F64");
}

void check_extents(const rf_attention_args& x) {
  for (const auto& [extent, name] :
       {std::pair{x.batch, "batch"}, {x.queries, "queries"}, {x.keys, "keys"}, {x.heads, "heads"}}) {
    require(extent >= 0, kWhere, name, " must be >= 0, got ", extent);
  }
  for (const auto& [extent, name] :
       {std::pair{x.key_heads, "key_heads"}, {x.head_dim, "head_dim"}, {x.value_dim, "value_dim"}}) {
    require(extent >= 1, kWhere, name, " must be >= 1, got ", extent);
  }
  require(x.heads % x.key_heads == 0, kWhere, "heads must be a multiple of key_heads = ", x.key_heads, ", got ",
          x.heads);
  require(x.value_dim == x.head_dim || (x.rotation_v.cos == nullptr && x.table_v.rows == nullptr), kWhere,
          "value_dim must be head_dim = ", x.head_dim, " where values have a rotation or a table, got ", x.value_dim);
  check_size(kWhere, {x.batch, x.queries, x.heads, x.head_dim}, "q");
  check_size(kWhere, {x.batch, x.keys, x.heads, x.head_dim}, "k");
  check_size(kWhere, {x.batch, x.keys, x.heads, x.value_dim}, "v");
  check_size(kWhere, {x.batch, x.queries, x.heads, x.value_dim}, "out");
}

void check_pointers(const rf_attention_args& x) {
  const int64_t queries = x.batch * x.queries * x.heads, keys = x.batch * x.keys * x.heads;
  const int64_t bytes = element_bytes(x.dtype);
  check_pointer(kWhere, x.q, queries, bytes, "q");
  check_pointer(kWhere, x.k, keys, bytes, "k");
  check_pointer(kWhere, x.v, keys, bytes, "v");
  check_pointer(kWhere, x.query_positions, queries, sizeof(int64_t), "query_positions");
  check_pointer(kWhere, x.key_positions, keys, sizeof(int64_t), "key_positions");
  check_reach(kWhere, {{x.batch, x.q_stride_b}, {x.queries, x.q_stride_t}, {x.heads, x.q_stride_h}}, "q");
  check_reach(kWhere, {{x.batch, x.k_stride_b}, {x.keys, x.k_stride_t}, {x.key_heads, x.k_stride_h}}, "k");
  check_reach(kWhere, {{x.batch, x.v_stride_b}, {x.keys, x.v_stride_t}, {x.key_heads, x.v_stride_h}}, "v");
  check_reach(kWhere, {{x.batch, x.out_stride_b}, {x.queries, x.out_stride_t}, {x.heads, x.out_stride_h}}, "out");
  check_reach(
      kWhere,
      {{x.batch, x.mask_stride_b}, {x.heads, x.mask_stride_h}, {x.queries, x.mask_stride_t}, {x.keys, x.mask_stride_s}},
      "mask");
}

void check_positions(const rf_attention_args& x, const int64_t* positions, int64_t stride_b, int64_t tokens,
                     const char* name) {
  require(stride_b >= 0, kWhere, name, "_stride_b must be >= 0, got ", stride_b);
  if (x.heads == 0) return;
  const bool bounded = x.a != nullptr;
  for (int64_t b = 0; b < x.batch; ++b) {
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t p = positions[b * stride_b + t];
      require(p >= -kMaxPosition && p <= kMaxPosition, kWhere, name, " must be within 2^53, got ", p);
      require(!bounded || (p >= 0 && p < x.positions), kWhere, name, " must be in 0..", x.positions - 1,
              ", the rows of a and c, got ", p);
    }
  }
}

void check_table(const rf_attention_args& x, const rf_attention_table& table, int64_t width, const char* name) {
  if (table.rows == nullptr) return;
  require(table.lo <= table.hi, kWhere, name, ".lo must be <= hi = ", table.hi, ", got ", table.lo);
  require(table.lo >= -kMaxPosition && table.hi <= kMaxPosition, kWhere, name, ".lo and hi must be within 2^53, got ",
          table.lo, " and ", table.hi);
  require(table.heads == x.heads || table.heads == 1, kWhere, name, ".heads must be 1 or heads = ", x.heads, ", got ",
          table.heads);
  require(table.width == width, kWhere, name, ".width must be ", width, ", got ", table.width);
  check_pointer(kWhere, table.rows, 0, row_element_bytes(x.dtype), name);
  check_size(kWhere, {table.heads, table.hi - table.lo + 1, table.width}, name);
}

void check_terms(const rf_attention_args& x) {
  const RotatedData vectors = {x.dtype, x.layout, x.batch, x.head_dim};
  const RotatedData values = {x.dtype, x.layout, x.batch, x.value_dim};
  check_rotation(kWhere, vectors, x.rotation_q, "rotation_q");
  check_rotation(kWhere, vectors, x.rotation_k, "rotation_k");
  check_rotation(kWhere, values, x.rotation_v, "rotation_v");
  check_table(x, x.table_k, x.head_dim, "table_k");
  check_table(x, x.table_q, x.head_dim, "table_q");
  check_table(x, x.table_v, x.value_dim, "table_v");
  check_table(x, x.bias, 1, "bias");
  check_table(x, x.gate, x.gate.width == 1 ? 1 : x.head_dim, "gate");
  require((x.a == nullptr) == (x.c == nullptr), kWhere, "a and c must be given together, got ",
          x.a == nullptr ? "c" : "a", " alone");
  if (x.a != nullptr) {
    require(x.positions >= 1, kWhere, "positions must be >= 1 with a and c, got ", x.positions);
    check_size(kWhere, {x.heads, x.positions, x.head_dim}, "a");
  }
  for (const auto& [numbers, name] :
       {std::pair{x.u, "u"}, {x.w, "w"}, {x.a, "a"}, {x.c, "c"}, {x.row, "row"}, {x.col, "col"}}) {
    check_pointer(kWhere, numbers, 0, row_element_bytes(x.dtype), name);
  }
  require(std::isfinite(x.scale), kWhere, "scale must be finite, got ", x.scale);
}

void check_ends(const int64_t* cu_seqlens, int64_t sequences, int64_t tokens, const char* extent, const char* name) {
  check_pointer(kWhere, cu_seqlens, sequences + 1, sizeof(int64_t), name);
  require(cu_seqlens[0] == 0, kWhere, name, " must begin with 0, got ", cu_seqlens[0]);
  for (int64_t i = 0; i < sequences; ++i) {
    require(cu_seqlens[i] <= cu_seqlens[i + 1], kWhere, name, " must not decrease, got ", cu_seqlens[i + 1], " after ",
            cu_seqlens[i]);
  }
  require(cu_seqlens[sequences] == tokens, kWhere, name, " must end with ", extent, " = ", tokens, ", got ",
          cu_seqlens[sequences]);
}

void check_packing(const rf_attention_args& x) {
  require((x.cu_seqlens_q == nullptr) == (x.cu_seqlens_k == nullptr), kWhere,
          "cu_seqlens_q and cu_seqlens_k must be given together, got ",
          x.cu_seqlens_q == nullptr ? "cu_seqlens_k" : "cu_seqlens_q", " alone");
  if (x.cu_seqlens_q == nullptr) return;
  require(x.batch == 1, kWhere, "batch must be 1 with packed sequences, got ", x.batch);
  require(x.sequences >= 0, kWhere, "sequences must be >= 0, got ", x.sequences);
  check_size(kWhere, {x.sequences, 2}, "cu_seqlens_q");
  check_ends(x.cu_seqlens_q, x.sequences, x.queries, "queries", "cu_seqlens_q");
  check_ends(x.cu_seqlens_k, x.sequences, x.keys, "keys", "cu_seqlens_k");
}

// A limit of a side that window does not name must be 0, so that a struct filled for other rules is not misread.
void check_limit(const rf_attention_args& x, uint32_t side, int64_t limit, const char* name) {
  const bool limited = (x.window & side) != 0;
  require(limit >= 0, kWhere, name, " must be >= 0, got ", limit);
  require(limited || limit == 0, kWhere, name, " must be 0 unless window limits that side, got ", limit);
}

void check_absent(const void* term, const void* gradient, const char* name) {
  require(term != nullptr || gradient == nullptr, kWhere, "the gradient of ", name,
          " must be NULL where the term is absent, got an array");
}

}  // namespace

void check_attention(const rf_attention_args& x) {
  check_dtype(x);
  check_extents(x);
  check_pointers(x);
  check_terms(x);
  check_packing(x);
  check_positions(x, x.query_positions, x.query_position_stride_b, x.queries, "query_positions");
  check_positions(x, x.key_positions, x.key_position_stride_b, x.keys, "key_positions");
  require(x.window <= (RF_WINDOW_LEFT | RF_WINDOW_RIGHT), kWhere,
          "window must be 0, RF_WINDOW_LEFT, RF_WINDOW_RIGHT or their sum, got ", x.window);
  check_limit(x, RF_WINDOW_LEFT, x.window_left, "window_left");
  check_limit(x, RF_WINDOW_RIGHT, x.window_right, "window_right");
}

void check_attention_out(const rf_attention_args& x) {
  check_pointer(kWhere, x.out, x.batch * x.queries * x.heads, element_bytes(x.dtype), "out");
}

void check_attention_grads(const rf_attention_args& x, const rf_attention_grads& grads) {
  const int64_t queries = x.batch * x.queries * x.heads;
  check_pointer(kWhere, grads.out, queries, element_bytes(x.dtype), "grads.out");
  if (x.dtype != RF_F64) {
    check_pointer(kWhere, x.out, queries, element_bytes(x.dtype), "out");
    check_pointer(kWhere, x.log_sum, queries, sizeof(float), "log_sum");
    for (const void* gradient : {grads.cos_q, grads.sin_q, grads.cos_k, grads.sin_k, grads.cos_v, grads.sin_v}) {
      if (gradient != nullptr) {
        throw NotImplemented("[attention] the gradients of cos and sin must be NULL unless dtype is RF_F64");
      }
    }
  }
  check_absent(x.rotation_q.cos, grads.cos_q, "rotation_q.cos");
  check_absent(x.rotation_q.sin, grads.sin_q, "rotation_q.sin");
  check_absent(x.rotation_k.cos, grads.cos_k, "rotation_k.cos");
  check_absent(x.rotation_k.sin, grads.sin_k, "rotation_k.sin");
  check_absent(x.rotation_v.cos, grads.cos_v, "rotation_v.cos");
  check_absent(x.rotation_v.sin, grads.sin_v, "rotation_v.sin");
  check_absent(x.u, grads.u, "u");
  check_absent(x.w, grads.w, "w");
  check_absent(x.table_k.rows, grads.table_k, "table_k");
  check_absent(x.table_q.rows, grads.table_q, "table_q");
  check_absent(x.table_v.rows, grads.table_v, "table_v");
  check_absent(x.bias.rows, grads.bias, "bias");
  check_absent(x.gate.rows, grads.gate, "gate");
  check_absent(x.a, grads.a, "a");
  check_absent(x.c, grads.c, "c");
  check_absent(x.row, grads.row, "row");
  check_absent(x.col, grads.col, "col");
}

}  // namespace rf::core
