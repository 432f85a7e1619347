// Argument rules of the linear layer (see the header).
#include "linear/checks.h"

#include <utility>

#include "common/element.h"
#include "common/error.h"

namespace rf::core {
namespace {

constexpr const char* kWhere = "linear";

// Bytes of elements of any size, with a margin for rounding up.
void check_size(int64_t rows, int64_t columns, const char* name) {
  constexpr int64_t kMaxElementBytes = 64;
  int64_t bytes = 0;
  require(!__builtin_mul_overflow(rows, columns, &bytes) && !__builtin_mul_overflow(bytes, kMaxElementBytes, &bytes),
          kWhere, "the size of ", name, " in bytes must fit in int64, got ", rows, " rows of ", columns);
}

void check_vector(const rf_linear_args& args, const void* data, const char* name) {
  const int64_t bytes = args.dtype == RF_F64 ? 8 : 4;
  require(is_aligned(data, bytes), kWhere, name, " must be aligned to its element of ", bytes, " bytes, got ", data);
}

}  // namespace

void check_linear_shape(rf_dtype dtype, int64_t rows, int64_t in, int64_t out) {
  require(element_bytes(dtype) != 0, kWhere, "dtype must be RF_F32, RF_F64, RF_BF16 or RF_F16, got ",
          static_cast<int>(dtype));
  // Far above any memory, and far enough below 2^63 for computations with extents.
  constexpr int64_t kMaxExtent = int64_t{1} << 40;
  for (const auto& [extent, name] : {std::pair{rows, "rows"}, {in, "in"}, {out, "out"}}) {
    require(extent >= 0 && extent <= kMaxExtent, kWhere, name, " must be in 0..2^40, got ", extent);
  }
  check_size(rows, in, "x");
  check_size(out, in, "weight");
  check_size(rows, out, "y");
}

void check_linear_array(rf_dtype dtype, const void* data, int64_t rows, int64_t columns, int64_t stride,
                        const char* name) {
  if (rows == 0 || columns == 0) return;
  require(data != nullptr, kWhere, name, " must not be NULL, got NULL");
  const int64_t bytes = element_bytes(dtype);
  require(is_aligned(data, bytes), kWhere, name, " must be aligned to its element of ", bytes, " bytes, got ", data);
  int64_t size = 0;
  require(rows == 1 || stride >= columns, kWhere, "the stride of ", name, " must be at least its columns = ", columns,
          ", got ", stride);
  require(rows == 1 || (!__builtin_mul_overflow(rows, stride, &size) && !__builtin_mul_overflow(size, bytes, &size)),
          kWhere, "the size of ", name, " in bytes must fit in int64, got ", rows, " rows of stride ", stride);
}

void check_linear(const rf_linear_args& args) {
  check_linear_shape(args.dtype, args.rows, args.in, args.out);
  const rf_dtype weight = weight_type(args);
  require(weight == args.dtype || (weight == RF_F32 && element_bytes(args.dtype) == 2), kWhere,
          "weight_dtype must be 0, dtype, or RF_F32 where dtype is RF_BF16 or RF_F16, got ", static_cast<int>(weight),
          " for dtype ", static_cast<int>(args.dtype));
  require(args.activation >= RF_LINEAR_NONE && args.activation <= RF_LINEAR_GELU_TANH, kWhere,
          "activation must be RF_LINEAR_NONE, RF_LINEAR_GELU_ERF or RF_LINEAR_GELU_TANH, got ",
          static_cast<int>(args.activation));
}

void check_linear_forward(const rf_linear_args& args) {
  check_linear_array(args.dtype, args.x, args.rows, args.in, args.x_stride, "x");
  check_linear_array(args.dtype, args.y, args.rows, args.out, args.y_stride, "y");
  require(args.packed == nullptr || args.weight == nullptr, kWhere,
          "weight must be NULL where packed is set, got both");
  if (args.packed == nullptr) {
    check_linear_array(weight_type(args), args.weight, args.out, args.in, args.weight_stride, "weight");
  }
  check_vector(args, args.bias, "bias");
}

void check_linear_backward(const rf_linear_args& args, const rf_linear_grads& grads) {
  require(args.activation == RF_LINEAR_NONE, kWhere,
          "activation must be RF_LINEAR_NONE for the backward (rf_gelu_backward comes first), got ",
          static_cast<int>(args.activation));
  require(args.packed == nullptr, kWhere, "packed must be NULL for the backward, got one");
  check_linear_array(args.dtype, grads.y, args.rows, args.out, grads.y_stride, "grads.y");
  if (grads.x != nullptr) {
    check_linear_array(args.dtype, grads.x, args.rows, args.in, grads.x_stride, "grads.x");
    check_linear_array(weight_type(args), args.weight, args.out, args.in, args.weight_stride, "weight");
  }
  if (grads.weight != nullptr) {
    check_linear_array(weight_type(args), grads.weight, args.out, args.in, grads.weight_stride, "grads.weight");
    check_linear_array(args.dtype, args.x, args.rows, args.in, args.x_stride, "x");
  }
  check_vector(args, grads.bias, "grads.bias");
}

}  // namespace rf::core
