// Packed sequences as separate calls (see the header): pointers to data by token move to a sequence's first token, and
// strides stay.
#include "attention/entries.h"

#include <algorithm>
#include <type_traits>

#include "attention/problem.h"
#include "attention/terms.h"
#include "common/element.h"

namespace rf::core {
namespace {

// Moves `data` by `count` elements of `bytes` bytes.
template <class T>
void move(T*& data, int64_t count, int64_t bytes) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  if (data != nullptr) data = reinterpret_cast<T*>(reinterpret_cast<Byte*>(data) + count * bytes);
}

}  // namespace

AttentionEntries::AttentionEntries(const rf_attention_args& x) : x_(x) {
  if (!packed() || x.dropout == 0) return;
  first_elements_.resize(static_cast<size_t>(x.sequences));
  int64_t first = 0;
  for (int64_t i = 0; i < x.sequences; ++i) {
    first_elements_[static_cast<size_t>(i)] = first;
    first += x.heads * queries(i) * keys(i);
  }
}

rf_attention_args AttentionEntries::largest() const {
  rf_attention_args x = x_;
  if (!packed()) return x;
  x.queries = x.keys = 0;
  for (int64_t i = 0; i < count(); ++i) {
    x.queries = std::max(x.queries, queries(i));
    x.keys = std::max(x.keys, keys(i));
  }
  return x;
}

rf_attention_args AttentionEntries::sequence(int64_t entry) const {
  rf_attention_args x = x_;
  const int64_t query = x.cu_seqlens_q[entry], key = x.cu_seqlens_k[entry], bytes = element_bytes(x.dtype);
  x.queries = queries(entry), x.keys = keys(entry);
  move(x.q, query * x.q_stride_t, bytes);
  move(x.k, key * x.k_stride_t, cache_element_bytes(x));
  move(x.v, key * x.v_stride_t, cache_element_bytes(x));
  move(x.out, query * x.out_stride_t, bytes);
  move(x.log_sum, query, sizeof(float));
  move(x.query_positions, query, sizeof(int64_t));
  move(x.key_positions, key, sizeof(int64_t));
  for (const RotationTerm& term : kRotationTerms) {
    rf_attention_rotation& rotation = x.*term.member;
    const int64_t numbers = (term.side == RotationTerm::Side::kQuery ? query : key) * term.heads(x_) * rotation.pairs;
    move(rotation.cos, numbers, sizeof(float));
    move(rotation.sin, numbers, sizeof(float));
  }
  for (const ScoresTerm& term : kScoresTerms) {
    move((x.*term.member).numbers, query * (x.*term.member).stride_t + key, sizeof(float));
  }
  move(x.prefix, entry, sizeof(int64_t));
  move(x.mask, query * x.mask_stride_t + key * x.mask_stride_s, sizeof(uint8_t));
  x.cu_seqlens_q = x.cu_seqlens_k = nullptr;
  x.sequences = 0;
  return x;
}

rf_attention_grads AttentionEntries::grads(int64_t entry, const rf_attention_grads& of_all) const {
  rf_attention_grads g = of_all;
  if (!packed()) return g;
  const int64_t query = x_.cu_seqlens_q[entry], key = x_.cu_seqlens_k[entry], bytes = element_bytes(x_.dtype);
  move(g.out, query * g.out_stride_t, bytes);
  move(g.q, query * x_.heads * x_.head_dim, bytes);
  move(g.k, key * x_.key_heads * x_.head_dim, bytes);
  move(g.v, key * x_.key_heads * x_.value_dim, bytes);
  // A row for each head of the side, as attention_backward_heads writes them.
  for (const RotationTerm& term : kRotationTerms) {
    const int64_t token = term.side == RotationTerm::Side::kQuery ? query : key;
    const int64_t numbers = token * term.all_heads(x_) * (x_.*term.member).pairs;
    move(g.*term.cos_gradient, numbers, sizeof(float));
    move(g.*term.sin_gradient, numbers, sizeof(float));
  }
  for (const ScoresTerm& term : kScoresTerms) {
    const int64_t row = term.rows_rule == ScoresTerm::Rows::kOne ? 0 : query;
    move(g.*term.gradient, row * x_.keys + key, sizeof(float));
  }
  return g;
}

}  // namespace rf::core
