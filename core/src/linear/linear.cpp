// C interface of the linear layer (rf/linear.h): its rules and the three products.
#include "rf/linear.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/aligned_array.h"
#include "common/arguments.h"
#include "common/cpu_features.h"
#include "common/element.h"
#include "common/reference.h"
#include "common/target.h"
#include "linear/gemm.h"
#include "linear/gemm_blocks.h"
#include "linear/gemm_int8.h"
#include "linear/gemm_kernel.h"

struct rf_linear_packed {
  rf_dtype dtype = {};
  rf::core::Unit unit = {};
  int64_t in = 0, out = 0;
  rf::core::AlignedArray<uint32_t> units;
  // At most one of units, int8 and blocks is set.
  std::unique_ptr<const rf::core::Int8Weight> int8{};
  std::unique_ptr<const rf::core::BlockWeight> blocks{};
};

namespace rf::core {
namespace {

constexpr const char* kWhere = "linear";

// Bytes of elements of any size, with a margin for rounding up.
void check_matrix(int64_t rows, int64_t columns, const char* name) {
  constexpr int64_t kMaxElementBytes = 64;
  int64_t bytes = 0;
  require(!__builtin_mul_overflow(rows, columns, &bytes) && !__builtin_mul_overflow(bytes, kMaxElementBytes, &bytes),
          kWhere, "the size of ", name, " in bytes must fit in int64, got ", rows, " rows of ", columns);
}

void check_vector(const rf_linear_args& args, const void* data, const char* name) {
  check_pointer(kWhere, data, 0, row_element_bytes(args.dtype), name);
}

void check_shape(rf_dtype dtype, int64_t rows, int64_t in, int64_t out) {
  check_dtype(kWhere, dtype);
  // Far above any memory, and far enough below 2^63 for computations with extents.
  constexpr int64_t kMaxExtent = int64_t{1} << 40;
  for (const auto& [extent, name] : {std::pair{rows, "rows"}, {in, "in"}, {out, "out"}}) {
    require(extent >= 0 && extent <= kMaxExtent, kWhere, name, " must be in 0..2^40, got ", extent);
  }
  check_matrix(rows, in, "x");
  check_matrix(out, in, "weight");
  check_matrix(rows, out, "y");
}

// An array of `rows` rows; NULL is refused if it has elements.
void check_array(rf_dtype dtype, const void* data, int64_t rows, int64_t columns, int64_t stride, const char* name) {
  if (rows == 0 || columns == 0) return;
  const int64_t bytes = element_bytes(dtype);
  check_pointer(kWhere, data, 1, bytes, name);
  int64_t size = 0;
  require(rows == 1 || stride >= columns, kWhere, "the stride of ", name, " must be at least its columns = ", columns,
          ", got ", stride);
  require(rows == 1 || (!__builtin_mul_overflow(rows, stride, &size) && !__builtin_mul_overflow(size, bytes, &size)),
          kWhere, "the size of ", name, " in bytes must fit in int64, got ", rows, " rows of stride ", stride);
}

void check_linear(const rf_linear_args& args) {
  check_shape(args.dtype, args.rows, args.in, args.out);
  const rf_dtype weight = weight_type(args);
  require(weight == args.dtype || (weight == RF_F32 && element_bytes(args.dtype) == 2), kWhere,
          "weight_dtype must be 0, dtype, or RF_F32 where dtype is RF_BF16 or RF_F16, got ", static_cast<int>(weight),
          " for dtype ", static_cast<int>(args.dtype));
  require(args.activation >= RF_LINEAR_NONE && args.activation <= RF_LINEAR_GELU_TANH, kWhere,
          "activation must be RF_LINEAR_NONE, RF_LINEAR_GELU_ERF or RF_LINEAR_GELU_TANH, got ",
          static_cast<int>(args.activation));
}

void check_forward(const rf_linear_args& args) {
  check_array(args.dtype, args.x, args.rows, args.in, args.x_stride, "x");
  check_array(args.dtype, args.y, args.rows, args.gate == 0 ? args.out : args.out / 2, args.y_stride, "y");
  require(args.packed == nullptr || args.weight == nullptr, kWhere,
          "weight must be NULL where packed is set, got both");
  if (args.packed == nullptr) {
    check_array(weight_type(args), args.weight, args.out, args.in, args.weight_stride, "weight");
  }
  check_vector(args, args.bias, "bias");
  require(
      args.gate == 0 || (args.gate >= RF_GELU_ERF && args.gate <= RF_GELU_SILU && args.out % kBlockColumns == 0 &&
                         args.activation == RF_LINEAR_NONE && args.packed != nullptr && args.packed->int8 == nullptr),
      kWhere,
      "gate must be 0, or a form with packed weights other than int8, no activation and a multiple of 64 as out, got ",
      static_cast<int>(args.gate), " for out = ", args.out);
}

void check_backward(const rf_linear_args& args, const rf_linear_grads& grads) {
  require(args.activation == RF_LINEAR_NONE, kWhere,
          "activation must be RF_LINEAR_NONE for the backward (rf_gelu_backward comes first), got ",
          static_cast<int>(args.activation));
  require(args.packed == nullptr, kWhere, "packed must be NULL for the backward, got one");
  require(args.gate == 0, kWhere, "gate must be 0 for the backward, got ", static_cast<int>(args.gate));
  check_array(args.dtype, grads.y, args.rows, args.out, grads.y_stride, "grads.y");
  if (grads.x != nullptr) {
    check_array(args.dtype, grads.x, args.rows, args.in, grads.x_stride, "grads.x");
    check_array(weight_type(args), args.weight, args.out, args.in, args.weight_stride, "weight");
  }
  if (grads.weight != nullptr) {
    check_array(weight_type(args), grads.weight, args.out, args.in, grads.weight_stride, "grads.weight");
    check_array(args.dtype, args.x, args.rows, args.in, args.x_stride, "x");
  }
  check_vector(args, grads.bias, "grads.bias");
}

bool is_reference(rf_dtype dtype) { return dtype == RF_F64 || use_reference(); }

Unit unit_of(rf_dtype dtype, bool pairs) { return dtype == RF_BF16 && pairs ? Unit::kBf16Pair : Unit::kFloat; }

// Pairs keep packed weights small where floats would be faster.
Unit packed_unit_of(rf_dtype dtype) { return unit_of(dtype, multiplies_bf16_pairs()); }

using Contiguous = GemmOperand::Contiguous;

Gemm product_of(const rf_linear_args& args, int64_t rows, int64_t columns, int64_t depth) {
  Gemm gemm;
  gemm.unit = unit_of(args.dtype, multiplies_bf16_pairs() && has_fast_bf16_pairs());
  gemm.amx = use_amx();
  gemm.rows = rows;
  gemm.columns = columns;
  gemm.depth = depth;
  return gemm;
}

// B(t,j) = W[j][t]; no rows.
Gemm weight_product(rf_dtype dtype, int64_t in, int64_t out, const void* weight, int64_t stride) {
  Gemm gemm;
  gemm.unit = packed_unit_of(dtype);
  gemm.columns = out;
  gemm.depth = in;
  gemm.b = {dtype, weight, stride, Contiguous::kDepth};
  return gemm;
}

void check_packed(const rf_linear_args& args) {
  const rf_linear_packed& packed = *args.packed;
  require(packed.dtype == args.dtype && packed.in == args.in && packed.out == args.out, kWhere,
          "packed must be of the dtype, in and out of the call = ", static_cast<int>(args.dtype), ", ", args.in, ", ",
          args.out, ", got ", static_cast<int>(packed.dtype), ", ", packed.in, ", ", packed.out);
  require(!use_reference() && packed.unit == packed_unit_of(args.dtype), kWhere,
          "packed must be used with the instruction set that it was packed for, got a weight packed for another");
}

// Checks packed int8 and block weights, which serve several types of x.
template <class Weight>
void check_any_packed(const rf_linear_args& args, const Weight& weight) {
  require(args.dtype != RF_F64, kWhere,
          "dtype must be RF_F32, RF_BF16 or RF_F16 for a weight packed as int8 or blocks, got ",
          static_cast<int>(args.dtype));
  require(weight.in == args.in && weight.out == args.out, kWhere,
          "packed must be of the in and out of the call = ", args.in, ", ", args.out, ", got ", weight.in, ", ",
          weight.out);
}

void forward_int8(const rf_linear_args& args, const Int8Weight& weight) {
  check_any_packed(args, weight);
  use_reference() ? ref::linear_int8(args, weight) : multiply_int8(args, weight);
}

void forward(const rf_linear_args& args) {
  check_linear(args);
  check_forward(args);
  if (args.packed != nullptr && args.packed->int8 != nullptr) return forward_int8(args, *args.packed->int8);
  const BlockWeight* blocks = args.packed == nullptr ? nullptr : args.packed->blocks.get();
  if (blocks != nullptr) {
    check_any_packed(args, *blocks);
    if (use_reference()) return ref::linear_blocks(args, *blocks);
  } else if (args.packed != nullptr) {
    check_packed(args);
  }
  if (is_reference(args.dtype)) return ref::linear(args);
  Gemm gemm = product_of(args, args.rows, args.out, args.in);
  gemm.a = {args.dtype, args.x, args.x_stride, Contiguous::kDepth};
  gemm.b = {weight_type(args), args.weight, args.weight_stride, Contiguous::kDepth};
  if (blocks != nullptr) {
    gemm.blocks_b = blocks;
    gemm.chunk_units = kMaxSpanDepth;
    gemm.unit = Unit::kFloat;
  } else if (args.packed != nullptr) {
    gemm.packed_b = args.packed->units.get();
    gemm.unit = args.packed->unit;
  }
  gemm.c_dtype = args.dtype;
  gemm.c = args.y;
  gemm.c_stride = args.y_stride;
  gemm.bias = static_cast<const float*>(args.bias);
  gemm.activation = args.activation;
  gemm.gate = args.gate;
  multiply(gemm);
}

void sum_bias(const rf_linear_args& args, const rf_linear_grads& grads) {
  const int64_t blocks = (args.out + kBlockColumns - 1) / kBlockColumns;
#pragma omp parallel for schedule(static) if (blocks > 1)
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t column = block * kBlockColumns;
    sum_rows(args.dtype, grads.y, grads.y_stride, args.rows, column, std::min(kBlockColumns, args.out - column),
             static_cast<float*>(grads.bias) + column);
  }
}

void backward(const rf_linear_args& args, const rf_linear_grads& grads) {
  check_linear(args);
  check_backward(args, grads);
  if (is_reference(args.dtype)) return ref::linear_backward(args, grads);
  if (grads.x != nullptr) {
    Gemm gemm = product_of(args, args.rows, args.in, args.out);
    gemm.a = {args.dtype, grads.y, grads.y_stride, Contiguous::kDepth};
    gemm.b = {weight_type(args), args.weight, args.weight_stride, Contiguous::kLines};
    gemm.c_dtype = args.dtype;
    gemm.c = grads.x;
    gemm.c_stride = grads.x_stride;
    multiply(gemm);
  }
  if (grads.weight != nullptr) {
    Gemm gemm = product_of(args, args.out, args.in, args.rows);
    gemm.a = {args.dtype, grads.y, grads.y_stride, Contiguous::kLines};
    gemm.b = {args.dtype, args.x, args.x_stride, Contiguous::kLines};
    gemm.c_dtype = weight_type(args);
    gemm.c = grads.weight;
    gemm.c_stride = grads.weight_stride;
    multiply(gemm);
  }
  if (grads.bias != nullptr) sum_bias(args, grads);
}

std::unique_ptr<rf_linear_packed> pack(rf_dtype dtype, int64_t in, int64_t out, const void* weight, int64_t stride) {
  check_shape(dtype, 0, in, out);
  check_array(dtype, weight, out, in, stride, "weight");
  if (is_reference(dtype)) throw NotImplemented("[linear] packing needs kernels, got RF_F64 or the reference");
  const Gemm gemm = weight_product(dtype, in, out, weight, stride);
  auto packed = std::unique_ptr<rf_linear_packed>(new rf_linear_packed{dtype, gemm.unit, in, out, {}});
  packed->units = huge_array<uint32_t>(packed_units(gemm));
  pack_b(gemm, packed->units.get());
  return packed;
}

void check_input_scales(const float* scales, int64_t in) {
  for (int64_t i = 0; i < in; ++i) {
    require(scales[i] >= 0x1p-64f && scales[i] <= 0x1p64f, kWhere, "input_scales must be in 2^-64..2^64, got ",
            scales[i], " for input ", i);
  }
}

std::unique_ptr<rf_linear_packed> pack_int8_weight(int64_t in, int64_t out, const float* weight, int64_t stride,
                                                   const float* input_scales) {
  check_shape(RF_F32, 0, in, out);
  require(in <= kMaxInt8Depth, kWhere, "in must be in 0..2^16 for int8, where sums are exact, got ", in);
  check_array(RF_F32, weight, out, in, stride, "weight");
  if (input_scales != nullptr) check_input_scales(input_scales, in);
  auto packed = std::make_unique<rf_linear_packed>();
  packed->int8 = std::make_unique<const Int8Weight>(pack_int8(in, out, weight, stride, input_scales));
  return packed;
}

std::unique_ptr<rf_linear_packed> pack_block_weight(rf_block_type type, int64_t in, int64_t out,
                                                    const void* const* rows) {
  check_shape(RF_F32, 0, in, out);
  const BlockForm* form = find_block_form(type);
  require(form != nullptr, kWhere, "type must be one of rf_block_type, got ", static_cast<int>(type));
  require(in % form->elements == 0, kWhere, "in must be a multiple of ", form->elements, " for ", form->name, ", got ",
          in);
  check_pointer(kWhere, rows, in * out, alignof(void*), "rows");
  for (int64_t j = 0; in > 0 && j < out; ++j) require(rows[j] != nullptr, kWhere, "rows must not be NULL, got row ", j);
  auto packed = std::make_unique<rf_linear_packed>();
  packed->blocks = std::make_unique<const BlockWeight>(pack_blocks(*form, in, out, rows));
  return packed;
}

}  // namespace
}  // namespace rf::core

extern "C" rf_status rf_linear_forward(const rf_linear_args* args) {
  return rf::core::with_arguments("linear", args, rf::core::forward);
}

extern "C" rf_status rf_linear_backward(const rf_linear_args* args, const rf_linear_grads* grads) {
  return rf::core::with_arguments("linear", args, grads, rf::core::backward);
}

extern "C" rf_status rf_linear_pack(rf_dtype dtype, int64_t in, int64_t out, const void* weight, int64_t weight_stride,
                                    rf_linear_packed** packed) {
  return rf::core::guarded("linear", [&] {
    rf::core::require(packed != nullptr, "linear", "packed must not be NULL, got NULL");
    *packed = nullptr;
    *packed = rf::core::pack(dtype, in, out, weight, weight_stride).release();
  });
}

extern "C" rf_status rf_linear_pack_int8(int64_t in, int64_t out, const float* weight, int64_t weight_stride,
                                         const float* input_scales, rf_linear_packed** packed) {
  return rf::core::guarded("linear", [&] {
    rf::core::require(packed != nullptr, "linear", "packed must not be NULL, got NULL");
    *packed = nullptr;
    *packed = rf::core::pack_int8_weight(in, out, weight, weight_stride, input_scales).release();
  });
}

extern "C" rf_status rf_linear_pack_blocks(rf_block_type type, int64_t in, int64_t out, const void* const* rows,
                                           rf_linear_packed** packed) {
  return rf::core::guarded("linear", [&] {
    rf::core::require(packed != nullptr, "linear", "packed must not be NULL, got NULL");
    *packed = nullptr;
    *packed = rf::core::pack_block_weight(type, in, out, rows).release();
  });
}

extern "C" void rf_linear_packed_destroy(rf_linear_packed* packed) { delete packed; }

extern "C" const char* rf_linear_backend(rf_dtype dtype, int64_t rows, int64_t in, int64_t out) {
  const char* name = "";
  rf::core::guarded("linear", [&] {
    rf::core::check_shape(dtype, rows, in, out);
    name = rf::core::is_reference(dtype) ? "ref" : "plain";
  });
  return name;
}
