// Argument structs of the C interface, and rules that they share. A caller was compiled with some version of a struct
// and gives its size in struct_size; the library works on a copy of the current size. Fields that the caller's version
// lacks are zero, which for every field added later means the behaviour before it. Fields that the library does not
// know must be zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "common/error.h"
#include "rf/attention.h"
#include "rf/linear.h"
#include "rf/linear_attention.h"
#include "rf/listed_attention.h"
#include "rf/rope.h"
#include "rf/rope_scaling.h"
#include "rf/rows.h"

namespace rf::core {

// The end of the first version of each struct, the smallest of any caller. They never change; fields are added at the
// end.
template <class Args>
inline constexpr size_t kFirstSize = 0;

#define RF_FIRST_VERSION_ENDS_WITH(Args, field) \
  template <>                                   \
  inline constexpr size_t kFirstSize<Args> = offsetof(Args, field) + sizeof(Args::field)
RF_FIRST_VERSION_ENDS_WITH(rf_attention_args, window_right);
RF_FIRST_VERSION_ENDS_WITH(rf_attention_grads, reset_col);
RF_FIRST_VERSION_ENDS_WITH(rf_linear_attention_args, state);
RF_FIRST_VERSION_ENDS_WITH(rf_linear_attention_grads, v);
RF_FIRST_VERSION_ENDS_WITH(rf_listed_attention_args, scale);
RF_FIRST_VERSION_ENDS_WITH(rf_rope_args, position_offset);
RF_FIRST_VERSION_ENDS_WITH(rf_rope_rows_args, row_stride_t);
RF_FIRST_VERSION_ENDS_WITH(rf_rope_scaling, rotating_pairs);
RF_FIRST_VERSION_ENDS_WITH(rf_linear_args, y_stride);
RF_FIRST_VERSION_ENDS_WITH(rf_linear_grads, bias);
RF_FIRST_VERSION_ENDS_WITH(rf_norm_args, y_stride);
RF_FIRST_VERSION_ENDS_WITH(rf_norm_grads, beta);
RF_FIRST_VERSION_ENDS_WITH(rf_gelu_args, y_stride);
RF_FIRST_VERSION_ENDS_WITH(rf_gelu_grads, bias);
RF_FIRST_VERSION_ENDS_WITH(rf_softmax_args, y_stride);
RF_FIRST_VERSION_ENDS_WITH(rf_softmax_grads, x_stride);
RF_FIRST_VERSION_ENDS_WITH(rf_cross_entropy_args, log_sum);
RF_FIRST_VERSION_ENDS_WITH(rf_cross_entropy_grads, logits_stride);
#undef RF_FIRST_VERSION_ENDS_WITH

// No version of any struct is larger; a greater struct_size means it was not set.
inline constexpr size_t kMaxStructSize = 4096;

// `copy`, of `known` bytes: the struct at `given`, then zeros.
void copy_arguments(const char* where, const char* name, const void* given, size_t first, size_t known, void* copy);

// The caller's struct in the current version. Throws InvalidArgument; `name` is the argument's name in the message.
template <class Args>
Args arguments(const char* where, const Args* given, const char* name = "args") {
  static_assert(kFirstSize<Args> != 0, "a struct with struct_size needs its first size in the list above");
  Args copy = {};
  copy_arguments(where, name, given, kFirstSize<Args>, sizeof copy, &copy);
  copy.struct_size = sizeof copy;
  return copy;
}

// Runs the body of a C function with the caller's structs in the current version.
template <class Args, class Body>
rf_status with_arguments(const char* where, const Args* args, const Body& body) {
  return guarded(where, [&] { body(arguments(where, args)); });
}
template <class Args, class Grads, class Body>
rf_status with_arguments(const char* where, const Args* args, const Grads* grads, const Body& body) {
  return guarded(where, [&] {
    const Args x = arguments(where, args);
    body(x, arguments(where, grads, "grads"));
  });
}

// Rules that operators share. `where` is the operator's name in the message.
void check_dtype(const char* where, rf_dtype dtype);

void check_at_least(const char* where, int64_t least, std::initializer_list<std::pair<int64_t, const char*>> extents);

// A probability of dropout.
void check_dropout(const char* where, double p, const char* name);

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
