// Packed sequences as calls of their own (see the header): pointers to what belongs to a token move to a sequence's
// first, and strides stay.
#include "attention/entries.h"

#include <algorithm>
#include <type_traits>

#include "attention/terms.h"
#include "common/element.h"

namespace rf::core {
namespace {

// `count` elements of `bytes` further on.
template <class T>
void move(T*& data, int64_t count, int64_t bytes) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  if (data != nullptr) data = reinterpret_cast<T*>(reinterpret_cast<Byte*>(data) + count * bytes);
}

void move_rotation(rf_attention_rotation& rotation, int64_t tokens) {
  move(rotation.cos, tokens * rotation.pairs, sizeof(float));
  move(rotation.sin, tokens * rotation.pairs, sizeof(float));
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
  move(x.k, key * x.k_stride_t, bytes);
  move(x.v, key * x.v_stride_t, bytes);
  move(x.out, query * x.out_stride_t, bytes);
  move(x.log_sum, query, sizeof(float));
  move(x.query_positions, query, sizeof(int64_t));
  move(x.key_positions, key, sizeof(int64_t));
  move_rotation(x.query, query);
  move_rotation(x.key, key);
  move_rotation(x.value, key);
  for (const ScoresTerm& term : kScoresTerms) {
    move((x.*term.member).numbers, query * (x.*term.member).stride_t + key, sizeof(float));
  }
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
  for (const ScoresTerm& term : kScoresTerms) {
    const int64_t row = term.rows_rule == ScoresTerm::Rows::kOne ? 0 : query;
    move(g.*term.gradient, row * x_.keys + key, sizeof(float));
  }
  return g;
}

}  // namespace rf::core
