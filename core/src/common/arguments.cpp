// Copies of callers' structs, and shared rules (see the header).
#include "common/arguments.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "common/element.h"

namespace rf::core {

void copy_arguments(const char* where, const char* name, const void* given, size_t first, size_t known, void* copy) {
  require(given != nullptr, where, name, " must not be NULL, got NULL");
  const auto* bytes = static_cast<const unsigned char*>(given);
  size_t size = 0;
  std::memcpy(&size, bytes, sizeof size);
  require(size >= first && size <= kMaxStructSize, where, "struct_size of ", name, " must be in ", first, "..",
          kMaxStructSize, ", got ", size);
  for (size_t i = known; i < size; ++i) {
    require(bytes[i] == 0, where, name, " must be zero after byte ", known, ", where version ", rf_version(),
            " of the library has no field, got ", static_cast<int>(bytes[i]), " at byte ", i);
  }
  std::memcpy(copy, bytes, std::min(size, known));
}

void check_dtype(const char* where, rf_dtype dtype) {
  require(element_bytes(dtype) != 0, where, "dtype must be RF_F32, RF_F64, RF_BF16 or RF_F16, got ",
          static_cast<int>(dtype));
}

void check_at_least(const char* where, int64_t least, std::initializer_list<std::pair<int64_t, const char*>> extents) {
  for (const auto& [extent, name] : extents) {
    require(extent >= least, where, name, " must be >= ", least, ", got ", extent);
  }
}

void check_dropout(const char* where, double p, const char* name) {
  require(p >= 0 && p < 1 - 0x1p-17, where, name, " must be in [0, 1 - 2^-17), got ", p);
}

void check_size(const char* where, std::initializer_list<int64_t> extents, const char* name) {
  int64_t bytes = sizeof(double);
  for (const int64_t extent : extents) {
    require(!__builtin_mul_overflow(bytes, extent, &bytes), where, "the size of ", name,
            " in bytes must fit in int64, got ", extent, " as one of its extents");
  }
}

void check_reach(const char* where, std::initializer_list<std::pair<int64_t, int64_t>> dimensions, const char* name) {
  int64_t reach = 0, step = 0;
  for (const auto& [extent, stride] : dimensions) {
    if (extent == 0) return;
    const bool fits = stride != INT64_MIN && !__builtin_mul_overflow(extent - 1, std::abs(stride), &step) &&
                      !__builtin_add_overflow(reach, step, &reach) && reach <= INT64_MAX / 16;
    require(fits, where, "extents times strides of ", name, " must fit in int64, got a stride of ", stride);
  }
}

void check_pointer(const char* where, const void* data, int64_t elements, int64_t bytes, const char* name) {
  require(data != nullptr || elements == 0, where, name, " must not be NULL, got NULL");
  require(is_aligned(data, bytes), where, name, " must be aligned to its element of ", bytes, " bytes, got ", data);
}

void check_rotation(const char* where, const RotatedData& data, const rf_attention_rotation& rotation,
                    const char* name) {
  require((rotation.cos == nullptr) == (rotation.sin == nullptr), where, name,
          " must have both cos and sin or neither, got ", rotation.cos == nullptr ? "sin" : "cos", " alone");
  if (rotation.cos == nullptr) return;
  require(data.layout == RF_ROPE_PAIRS || data.layout == RF_ROPE_HALVES, where,
          "layout must be RF_ROPE_PAIRS or RF_ROPE_HALVES, got ", static_cast<int>(data.layout));
  require(rotation.batch == data.batch || rotation.batch == 1, where, name, ".batch must be 1 or batch = ", data.batch,
          ", got ", rotation.batch);
  require(rotation.pairs >= 1 && rotation.pairs <= data.width / 2, where, name, ".pairs must be in 1..", data.width / 2,
          ", got ", rotation.pairs);
  check_pointer(where, rotation.cos, 0, row_element_bytes(data.dtype), name);
  check_pointer(where, rotation.sin, 0, row_element_bytes(data.dtype), name);
}

namespace {

void check_ends(const char* where, const int64_t* cu_seqlens, int64_t sequences, int64_t tokens, const char* extent,
                const char* name) {
  check_pointer(where, cu_seqlens, sequences + 1, sizeof(int64_t), name);
  require(cu_seqlens[0] == 0, where, name, " must begin with 0, got ", cu_seqlens[0]);
  for (int64_t i = 0; i < sequences; ++i) {
    require(cu_seqlens[i] <= cu_seqlens[i + 1], where, name, " must not decrease, got ", cu_seqlens[i + 1], " after ",
            cu_seqlens[i]);
  }
  require(cu_seqlens[sequences] == tokens, where, name, " must end with ", extent, " = ", tokens, ", got ",
          cu_seqlens[sequences]);
}

}  // namespace

void check_packing(const char* where, const Packing& x) {
  require((x.cu_seqlens_q == nullptr) == (x.cu_seqlens_k == nullptr), where,
          "cu_seqlens_q and cu_seqlens_k must be given together, got ",
          x.cu_seqlens_q == nullptr ? "cu_seqlens_k" : "cu_seqlens_q", " alone");
  if (x.cu_seqlens_q == nullptr) return;
  require(x.batch == 1, where, "batch must be 1 with packed sequences, got ", x.batch);
  require(x.sequences >= 0, where, "sequences must be >= 0, got ", x.sequences);
  check_size(where, {x.sequences, 2}, "cu_seqlens_q");
  check_ends(where, x.cu_seqlens_q, x.sequences, x.queries, "queries", "cu_seqlens_q");
  check_ends(where, x.cu_seqlens_k, x.sequences, x.keys, "keys", "cu_seqlens_k");
}

}  // namespace rf::core
