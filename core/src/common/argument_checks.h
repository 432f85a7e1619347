// Argument rules that the operators of attention share. `where` is the operator's name in the message.
#ifndef RF_CORE_COMMON_ARGUMENT_CHECKS_H_
#define RF_CORE_COMMON_ARGUMENT_CHECKS_H_

#include <cstdint>
#include <initializer_list>
#include <utility>

#include "rf/attention.h"

namespace rf::core {

// The bytes of a float64 array must fit in int64.
void check_size(const char* where, std::initializer_list<int64_t> extents, const char* name);

// The number of elements from the first to the last, by extents and strides, must also fit.
void check_reach(const char* where, std::initializer_list<std::pair<int64_t, int64_t>> dimensions, const char* name);

// A pointer may be NULL if nothing is read. bytes: of an element.
void check_pointer(const char* where, const void* data, int64_t elements, int64_t bytes, const char* name);

// The rotated vectors, of `width` elements.
struct RotatedData {
  rf_dtype dtype;
  rf_rope_layout layout;
  int64_t batch, width;
};
void check_rotation(const char* where, const RotatedData& data, const rf_attention_rotation& rotation,
                    const char* name);

// Packed sequences, as rf_attention_args describes them.
struct Packing {
  int64_t batch, queries, keys;
  const int64_t *cu_seqlens_q, *cu_seqlens_k;
  int64_t sequences;
};
template <class Args>
Packing packing_of(const Args& x) {
  return {x.batch, x.queries, x.keys, x.cu_seqlens_q, x.cu_seqlens_k, x.sequences};
}
void check_packing(const char* where, const Packing& x);

}  // namespace rf::core
#endif
