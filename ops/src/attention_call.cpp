// Rules and layouts of a call of attention (attention_call.h).
#include "attention_call.h"

#include <cmath>
#include <vector>

#include "layout.h"
#include "qkv_call.h"

namespace rf::ops {
namespace {

using SymSizes = std::vector<c10::SymInt>;

void check_positions(const AttentionCall& call, const at::Tensor& positions, const char* name,
                     const c10::SymInt& tokens) {
  const c10::SymInt batch = call.q.sym_size(0);
  TORCH_CHECK_VALUE(positions.scalar_type() == at::kLong, "[attention] ", name, " must be int64, got ",
                    positions.scalar_type());
  TORCH_CHECK_VALUE(positions.dim() == 2 && (positions.sym_size(0) == 1 || positions.sym_size(0) == batch) &&
                        positions.sym_size(1) == tokens,
                    "[attention] ", name, " must be [1 or ", batch, ", ", tokens, "], got ", positions.sym_sizes());
}

void check_prefix(const AttentionCall& call) {
  const at::Tensor& prefix = call.window.prefix;
  if (!prefix.defined()) return;
  const at::ScalarType type = prefix.scalar_type();
  const c10::SymInt entries = entries_of(call);
  TORCH_CHECK_VALUE((type == at::kInt || type == at::kLong) && prefix.dim() == 1 && prefix.sym_size(0) == entries,
                    "[attention] prefix must be int32 or int64 [", entries, "], one for each ",
                    call.cu_seqlens.defined() ? "packed sequence" : "entry of the batch", ", got ", type, " ",
                    prefix.sym_sizes());
}

void check_rotation(const AttentionCall& call, const char* name, const Rotation& rotation, bool of_queries) {
  const auto& [cos, sin] = rotation;
  TORCH_CHECK_VALUE(cos.defined() == sin.defined(), "[attention] ", name, "_cos and ", name,
                    "_sin must be given together, got ", name, cos.defined() ? "_cos" : "_sin", " alone");
  if (!cos.defined()) return;
  const at::Tensor& side = of_queries ? call.q : call.k;
  const c10::SymInt tokens = side.sym_size(1), heads = side.sym_size(2);
  const bool fits = (cos.dim() == 3 || (cos.dim() == 4 && (cos.sym_size(2) == 1 || cos.sym_size(2) == heads))) &&
                    cos.sym_size(1) == tokens && sin.sym_sizes() == cos.sym_sizes();
  TORCH_CHECK_VALUE(fits, "[attention] ", name, "_cos and ", name, "_sin must be [1 or batch, ", tokens,
                    ", R/2] or [1 or batch, ", tokens, ", 1 or ", heads, ", R/2], got ", cos.sym_sizes(), " and ",
                    sin.sym_sizes());
}

void check_table(const char* name, const DistanceTable& table, int64_t dimensions) {
  if (!table.defined()) return;
  const auto& [rows, lo, hi] = table;
  int64_t last = 0;  // row
  TORCH_CHECK_VALUE(lo <= hi && !__builtin_sub_overflow(hi, lo, &last), "[attention] the range of ", name,
                    " must be lo <= hi, got ", lo, "..", hi);
  TORCH_CHECK_VALUE(rows.dim() == dimensions && rows.sym_size(1) - 1 == last, "[attention] ", name, " must have ",
                    dimensions, " dimensions and a row for each of the distances ", lo, "..", hi, ", got ",
                    rows.sym_sizes());
}

void check_sizes(const char* name, const at::Tensor& term, const SymSizes& sizes) {
  if (!term.defined()) return;
  TORCH_CHECK_VALUE(term.sym_sizes() == c10::SymIntArrayRef(sizes), "[attention] ", name, " must be ",
                    c10::SymIntArrayRef(sizes), ", got ", term.sym_sizes());
}

// Rows by position for queries and for keys; both must have as many rows as the first given table.
void check_pair(const AttentionCall& call, const char* query_name, const at::Tensor& of_queries, const char* key_name,
                const at::Tensor& of_keys) {
  const at::Tensor& first = of_queries.defined() ? of_queries : of_keys;
  if (!first.defined()) return;
  const c10::SymInt positions = first.dim() == 3 ? first.sym_size(1) : c10::SymInt(0);
  const SymSizes sizes = {call.q.sym_size(2), positions, call.q.sym_size(3)};
  check_sizes(query_name, of_queries, sizes);
  check_sizes(key_name, of_keys, sizes);
}

enum class ScoreRows { kOne, kQueries };

// [1 or batch, 1 or heads, keys], or with a row for each query. core checks batch and heads.
void check_scores(const AttentionCall& call, const char* name, const at::Tensor& scores, ScoreRows rows) {
  if (!scores.defined()) return;
  const c10::SymInt queries = call.q.sym_size(1), keys = call.k.sym_size(1);
  const bool has_rows = rows == ScoreRows::kQueries;
  const int64_t dimensions = has_rows ? 4 : 3;
  const bool fits =
      scores.dim() == dimensions && scores.sym_size(-1) == keys && (!has_rows || scores.sym_size(2) == queries);
  TORCH_CHECK_VALUE(fits, "[attention] ", name, " must be [1 or batch, 1 or heads, ",
                    has_rows ? c10::str(queries, ", ") : std::string(), keys, "], got ", scores.sym_sizes());
}

enum class Side { kQuery, kKey, kValue };

void check_terms(const AttentionCall& call) {
  enum class Width { kOne, kHeadDim, kValueDim, kHeadDimOrOne };
  const auto numbers = [&](Width width) {
    const SymSizes of_heads = {call.q.sym_size(2)}, of_vectors = {call.q.sym_size(2), call.q.sym_size(3)};
    return width == Width::kOne ? of_heads : of_vectors;
  };
  const Terms& terms = call.terms;
#define RF_CHECK_ROTATION(name, symbol, side) check_rotation(call, #name, terms.name, Side::k##side == Side::kQuery);
#define RF_CHECK_TABLE(name, symbol, width) check_table(#name, terms.name, Width::k##width == Width::kOne ? 2 : 3);
#define RF_CHECK_NUMBERS(name, symbol, width) check_sizes(#name, terms.name, numbers(Width::k##width));
#define RF_CHECK_PAIR(query_name, query_symbol, key_name, key_symbol) \
  check_pair(call, #query_name, terms.query_name, #key_name, terms.key_name);
#define RF_CHECK_SCORES(name, symbol, rows) check_scores(call, #name, terms.name, ScoreRows::k##rows);
  RF_ATTENTION_TERMS(RF_CHECK_ROTATION, RF_CHECK_TABLE, RF_CHECK_NUMBERS, RF_CHECK_PAIR, RF_CHECK_SCORES)
#undef RF_CHECK_ROTATION
#undef RF_CHECK_TABLE
#undef RF_CHECK_NUMBERS
#undef RF_CHECK_PAIR
#undef RF_CHECK_SCORES
}

void check_mask(const AttentionCall& call) {
  const at::Tensor& mask = call.mask;
  if (!mask.defined()) return;
  const SymSizes scores = {call.q.sym_size(0), call.q.sym_size(2), call.q.sym_size(1), call.k.sym_size(1)};
  bool fits = mask.scalar_type() == at::kBool && mask.dim() <= 4;
  for (int64_t i = 0; fits && i < mask.dim(); ++i) {
    const c10::SymInt size = mask.sym_size(-1 - i);
    fits = size == 1 || size == scores[static_cast<size_t>(3 - i)];
  }
  TORCH_CHECK_VALUE(fits, "[attention] mask must be bool and broadcast to [batch, heads, queries, keys] = ",
                    c10::SymIntArrayRef(scores), ", got ", mask.scalar_type(), " ", mask.sym_sizes());
}

// All checks that do not read the values of tensors, for terms of any floating-point dtype.
void check_shapes(const AttentionCall& call) {
  parse_layout("attention", call.terms.layout);
  check_attention_devices(call);
  check_qkv("attention", "head_dim", call);
  check_positions(call, call.query_positions, "query_positions", call.q.sym_size(1));
  check_positions(call, call.key_positions, "key_positions", call.k.sym_size(1));
  check_terms(call);
  check_cu_seqlens("attention", call);
  check_prefix(call);
  check_mask(call);
}

// core's arguments without the results. `address` points to the elements of a tensor, or is NULL for an undefined one.
template <class Address>
rf_attention_args described(const AttentionCall& call, const Address& address) {
  auto args = qkv_args<rf_attention_args>(call, address);
  args.head_dim = call.q.size(3);
  args.query_positions = call.query_positions.const_data_ptr<int64_t>();
  args.query_position_stride_b = call.query_positions.size(0) == 1 ? 0 : args.queries;
  args.key_positions = call.key_positions.const_data_ptr<int64_t>();
  args.key_position_stride_b = call.key_positions.size(0) == 1 ? 0 : args.keys;
  const auto rotation = [&](const Rotation& x) {
    return !x.defined() ? rf_attention_rotation{}
                        : rf_attention_rotation{address(x.cos), address(x.sin), x.cos.size(0), x.cos.size(-1)};
  };
  const auto table = [&](const DistanceTable& x) {
    return !x.defined() ? rf_attention_table{}
                        : rf_attention_table{address(x.rows), x.lo, x.hi, x.rows.size(0),
                                             x.rows.dim() == 3 ? x.rows.size(2) : 1};
  };
  const auto scores = [&](const at::Tensor& x) {
    return !x.defined() ? rf_attention_scores{}
                        : rf_attention_scores{address(x),  x.size(0),   x.size(1),
                                              x.stride(0), x.stride(1), x.dim() == 4 ? x.stride(2) : 0};
  };
  const Terms& terms = call.terms;
#define RF_ROTATION(name, ...)      \
  args.name = rotation(terms.name); \
  if (terms.name.defined() && terms.name.cos.dim() == 4) args.name##_rotation_heads = terms.name.cos.size(2);
#define RF_TABLE(name, ...) args.name = table(terms.name);
#define RF_NUMBERS(name, ...) args.name = address(terms.name);
#define RF_PAIR(query_name, query_symbol, key_name, key_symbol)                         \
  args.query_name = address(terms.query_name), args.key_name = address(terms.key_name); \
  args.positions = terms.query_name.defined() ? terms.query_name.size(1) : 0;
#define RF_SCORES(name, ...) args.name = scores(terms.name);
  RF_ATTENTION_TERMS(RF_ROTATION, RF_TABLE, RF_NUMBERS, RF_PAIR, RF_SCORES)
#undef RF_ROTATION
#undef RF_TABLE
#undef RF_NUMBERS
#undef RF_PAIR
#undef RF_SCORES
  args.layout = parse_layout("attention", terms.layout);
  args.scale = terms.scale.value_or(1 / std::sqrt(static_cast<double>(args.head_dim)));
  if (call.window.left != -1) args.window |= RF_WINDOW_LEFT, args.window_left = call.window.left;
  if (call.window.right != -1) args.window |= RF_WINDOW_RIGHT, args.window_right = call.window.right;
  args.prefix = static_cast<const int64_t*>(data_or_null(call.window.prefix));
  return args;
}

// Positions, offsets and prefixes as core reads them.
void make_indices_readable(AttentionCall& call) {
  for (at::Tensor* indices :
       {&call.query_positions, &call.key_positions, &call.cu_seqlens.q, &call.cu_seqlens.k, &call.window.prefix}) {
    make_readable(*indices);
  }
}

}  // namespace

bool is_scores(const Terms& terms, const at::Tensor& x) {
#define RF_SCORES(name, ...) || &x == &terms.name
  return false RF_ATTENTION_TERMS(RF_NO_TERM, RF_NO_TERM, RF_NO_TERM, RF_NO_TERM, RF_SCORES);
#undef RF_SCORES
}

void check_floating(const AttentionCall& call) {
  const auto inputs = inputs_of(call);
  for (size_t i = 0; i < kInputs; ++i) {
    const at::Tensor& x = *inputs[i];
    TORCH_CHECK_VALUE(i >= kInputs - kTerms || x.defined(), "[attention] ", kInputNames[i],
                      " must be [batch, tokens, heads, size], got nothing");
    TORCH_CHECK_VALUE(!x.defined() || at::isFloatingType(x.scalar_type()), "[attention] ", kInputNames[i],
                      " must be floating-point, got ", x.scalar_type());
  }
}

void check_call(const AttentionCall& call) {
  check_shapes(call);
  const at::ScalarType dtype = row_dtype(call.q.scalar_type());
  const auto inputs = inputs_of(call);
  for (size_t i = kInputs - kTerms; i < kInputs; ++i) {
    TORCH_CHECK_VALUE(!inputs[i]->defined() || inputs[i]->scalar_type() == dtype, "[attention] ", kInputNames[i],
                      " must be ", dtype, " for data of ", call.q.scalar_type(), ", got ", inputs[i]->scalar_type());
  }
}

void check_attention_devices(const AttentionCall& call) {
  const auto inputs = inputs_of(call);
  for (size_t i = 0; i < kInputs; ++i) check_device("attention", kInputNames[i], *inputs[i], "q", call.q);
  for (const auto& [x, name] : {std::pair{&call.query_positions, "query_positions"},
                                {&call.key_positions, "key_positions"},
                                {&call.cu_seqlens.q, "cu_seqlens_q"},
                                {&call.cu_seqlens.k, "cu_seqlens_k"},
                                {&call.window.prefix, "prefix"},
                                {&call.mask, "mask"}}) {
    check_device("attention", name, *x, "q", call.q);
  }
}

void check_attention(const AttentionCall& call) {
  check_floating(call);
  check_shapes(call);
  AttentionCall readable = call;
  make_indices_readable(readable);
  // Tensors may be on another device or lack storage; core does not read their elements.
  alignas(64) static const char anywhere[64] = {};
  const rf_attention_args args =
      described(readable, [&](const at::Tensor& x) -> const void* { return x.defined() ? anywhere : nullptr; });
  check_status(rf_attention_check(&args));
}

AttentionCall made_contiguous(const AttentionCall& call) {
  AttentionCall to = call;
  for (at::Tensor* x : inputs_of(to)) {
    if (!x->defined()) continue;
    const bool any_stride =
        (x == &to.q || x == &to.k || x == &to.v || is_scores(to.terms, *x)) && (x->stride(-1) == 1 || x->size(-1) == 1);
    if (!any_stride) *x = x->contiguous();
  }
  make_indices_readable(to);
  if (call.mask.defined()) {
    to.mask = call.mask.expand({call.q.size(0), call.q.size(2), call.q.size(1), call.k.size(1)});
  }
  return to;
}

rf_attention_args core_args(Borrowed<AttentionCall> ready, Borrowed<at::Tensor> out, Borrowed<at::Tensor> log_sum) {
  const AttentionCall& call = *ready;
  rf_attention_args args = described(call, [](const at::Tensor& x) { return data_or_null(x); });
  set_out(args, out);
  if (log_sum->numel() > 0) args.log_sum = log_sum->mutable_data_ptr<float>();
  if (call.mask.defined()) {
    // A mask of one row is passed as the same row for all queries: core recognises padding by the strides.
    const auto stride = [&](int64_t dim) { return call.mask.size(dim) == 1 ? 0 : call.mask.stride(dim); };
    args.mask = static_cast<const uint8_t*>(call.mask.const_data_ptr());
    args.mask_stride_b = stride(0), args.mask_stride_h = stride(1);
    args.mask_stride_t = stride(2), args.mask_stride_s = stride(3);
  }
  args.dropout = call.dropout;
  args.seed = static_cast<uint64_t>(call.seed.expect_int());
  args.stream = static_cast<uint64_t>(call.stream.expect_int());
  return args;
}

rf_attention_grads core_grads(Borrowed<at::Tensor> grad_out, Borrowed<AttentionCall> grads) {
  auto g = qkv_grads<rf_attention_grads>(grad_out, grads->q, grads->k, grads->v);
  const Terms& terms = grads->terms;
#define RF_ROTATION(name, ...) \
  g.name##_cos = mutable_or_null(terms.name.cos), g.name##_sin = mutable_or_null(terms.name.sin);
#define RF_TABLE(name, ...) g.name = mutable_or_null(terms.name.rows);
#define RF_NUMBERS(name, ...) g.name = mutable_or_null(terms.name);
#define RF_PAIR(query_name, query_symbol, key_name, key_symbol) RF_NUMBERS(query_name) RF_NUMBERS(key_name)
  RF_ATTENTION_TERMS(RF_ROTATION, RF_TABLE, RF_NUMBERS, RF_PAIR, RF_NUMBERS)
#undef RF_ROTATION
#undef RF_TABLE
#undef RF_NUMBERS
#undef RF_PAIR
  return g;
}

}  // namespace rf::ops
