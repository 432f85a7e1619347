// Argument rules of attention over terms (see the header).
#include "attention_checks.h"

#include <cmath>
#include <initializer_list>
#include <utility>

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

// The bytes of a float64 array must fit in int64.
void check_size(std::initializer_list<int64_t> extents, const char* name) {
  int64_t bytes = sizeof(double);
  for (const int64_t extent : extents) {
    require(!__builtin_mul_overflow(bytes, extent, &bytes), kWhere, "the size of ", name,
            " in bytes must fit in int64, got ", extent, " as one of its extents");
  }
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
  check_size({x.batch, x.queries, x.heads, x.head_dim}, "q");
  check_size({x.batch, x.keys, x.heads, x.head_dim}, "k");
  check_size({x.batch, x.keys, x.heads, x.value_dim}, "v");
  check_size({x.batch, x.queries, x.heads, x.value_dim}, "out");
}

// A pointer may be NULL where there is nothing to read.
void check_pointer(const void* data, int64_t elements, int64_t bytes, const char* name) {
  require(data != nullptr || elements == 0, kWhere, name, " must not be NULL, got NULL");
  require(is_aligned(data, bytes), kWhere, name, " must be aligned to its element of ", bytes, " bytes, got ", data);
}

void check_pointers(const rf_attention_args& x) {
  const int64_t queries = x.batch * x.queries * x.heads, keys = x.batch * x.keys * x.heads;
  const int64_t bytes = element_bytes(x.dtype);
  check_pointer(x.q, queries, bytes, "q");
  check_pointer(x.k, keys, bytes, "k");
  check_pointer(x.v, keys, bytes, "v");
  check_pointer(x.query_positions, queries, sizeof(int64_t), "query_positions");
  check_pointer(x.key_positions, keys, sizeof(int64_t), "key_positions");
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

void check_rotation(const rf_attention_args& x, const rf_attention_rotation& rotation, int64_t width,
                    const char* name) {
  require((rotation.cos == nullptr) == (rotation.sin == nullptr), kWhere, name,
          " must have both cos and sin or neither, got ", rotation.cos == nullptr ? "sin" : "cos", " alone");
  if (rotation.cos == nullptr) return;
  require(x.layout == RF_ROPE_PAIRS || x.layout == RF_ROPE_HALVES, kWhere,
          "layout must be RF_ROPE_PAIRS or RF_ROPE_HALVES, got ", static_cast<int>(x.layout));
  require(rotation.batch == x.batch || rotation.batch == 1, kWhere, name, ".batch must be 1 or batch = ", x.batch,
          ", got ", rotation.batch);
  require(rotation.pairs >= 1 && rotation.pairs <= width / 2, kWhere, name, ".pairs must be in 1..", width / 2,
          ", got ", rotation.pairs);
}

void check_table(const rf_attention_args& x, const rf_attention_table& table, int64_t width, const char* name) {
  if (table.rows == nullptr) return;
  require(table.lo <= table.hi, kWhere, name, ".lo must be <= hi = ", table.hi, ", got ", table.lo);
  require(table.lo >= -kMaxPosition && table.hi <= kMaxPosition, kWhere, name, ".lo and hi must be within 2^53, got ",
          table.lo, " and ", table.hi);
  require(table.heads == x.heads || table.heads == 1, kWhere, name, ".heads must be 1 or heads = ", x.heads, ", got ",
          table.heads);
  require(table.width == width, kWhere, name, ".width must be ", width, ", got ", table.width);
  check_size({table.heads, table.hi - table.lo + 1, table.width}, name);
}

void check_terms(const rf_attention_args& x) {
  check_rotation(x, x.rotation_q, x.head_dim, "rotation_q");
  check_rotation(x, x.rotation_k, x.head_dim, "rotation_k");
  check_rotation(x, x.rotation_v, x.value_dim, "rotation_v");
  check_table(x, x.table_k, x.head_dim, "table_k");
  check_table(x, x.table_q, x.head_dim, "table_q");
  check_table(x, x.table_v, x.value_dim, "table_v");
  check_table(x, x.bias, 1, "bias");
  check_table(x, x.gate, x.gate.width == 1 ? 1 : x.head_dim, "gate");
  require((x.a == nullptr) == (x.c == nullptr), kWhere, "a and c must be given together, got ",
          x.a == nullptr ? "c" : "a", " alone");
  if (x.a != nullptr) {
    require(x.positions >= 1, kWhere, "positions must be >= 1 with a and c, got ", x.positions);
    check_size({x.heads, x.positions, x.head_dim}, "a");
  }
  require(std::isfinite(x.scale), kWhere, "scale must be finite, got ", x.scale);
}

void check_absent(const void* term, const void* gradient, const char* name) {
  require(term != nullptr || gradient == nullptr, kWhere, "the gradient of ", name,
          " must be NULL where there is no such term, got one");
}

}  // namespace

void check_attention(const rf_attention_args* args) {
  require(args != nullptr, kWhere, "args must not be NULL, got NULL");
  require(args->struct_size >= sizeof *args, kWhere, "struct_size must be at least ", sizeof *args, ", got ",
          args->struct_size);
  check_dtype(*args);
  check_extents(*args);
  check_pointers(*args);
  check_terms(*args);
  check_positions(*args, args->query_positions, args->query_position_stride_b, args->queries, "query_positions");
  check_positions(*args, args->key_positions, args->key_position_stride_b, args->keys, "key_positions");
  for (const auto& [limit, name] :
       {std::pair{args->window_left, "window_left"}, {args->window_right, "window_right"}}) {
    require(limit >= -1, kWhere, name, " must be >= 0, or -1 for no limit, got ", limit);
  }
}

void check_attention_out(const rf_attention_args& x) {
  check_pointer(x.out, x.batch * x.queries * x.heads, element_bytes(x.dtype), "out");
}

void check_attention_grads(const rf_attention_args& x, const rf_attention_grads* grads) {
  require(grads != nullptr, kWhere, "grads must not be NULL, got NULL");
  require(grads->struct_size >= sizeof *grads, kWhere, "struct_size of grads must be at least ", sizeof *grads,
          ", got ", grads->struct_size);
  const int64_t queries = x.batch * x.queries * x.heads;
  check_pointer(grads->out, queries, element_bytes(x.dtype), "grads.out");
  if (x.dtype != RF_F64) {
    check_pointer(x.out, queries, element_bytes(x.dtype), "out");
    check_pointer(x.log_sum, queries, sizeof(float), "log_sum");
    for (const void* gradient : {grads->cos_q, grads->sin_q, grads->cos_k, grads->sin_k, grads->cos_v, grads->sin_v}) {
      if (gradient != nullptr) {
        throw NotImplemented("[attention] the gradients of cos and sin must be NULL unless dtype is RF_F64");
      }
    }
  }
  check_absent(x.rotation_q.cos, grads->cos_q, "rotation_q.cos");
  check_absent(x.rotation_q.sin, grads->sin_q, "rotation_q.sin");
  check_absent(x.rotation_k.cos, grads->cos_k, "rotation_k.cos");
  check_absent(x.rotation_k.sin, grads->sin_k, "rotation_k.sin");
  check_absent(x.rotation_v.cos, grads->cos_v, "rotation_v.cos");
  check_absent(x.rotation_v.sin, grads->sin_v, "rotation_v.sin");
  check_absent(x.u, grads->u, "u");
  check_absent(x.w, grads->w, "w");
  check_absent(x.table_k.rows, grads->table_k, "table_k");
  check_absent(x.table_q.rows, grads->table_q, "table_q");
  check_absent(x.table_v.rows, grads->table_v, "table_v");
  check_absent(x.bias.rows, grads->bias, "bias");
  check_absent(x.gate.rows, grads->gate, "gate");
  check_absent(x.a, grads->a, "a");
  check_absent(x.c, grads->c, "c");
  check_absent(x.row, grads->row, "row");
  check_absent(x.col, grads->col, "col");
}

}  // namespace rf::core
