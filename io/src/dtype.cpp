// Names and sizes of the element types. safetensors' other types (F8_*, C64, F4, ...) are refused by name.
#include "rf/io/dtype.h"

#include "rf/io/error.h"
#include "rf/io/printable.h"

namespace rf::io {
namespace {

struct TypeEntry {
  DType dtype;
  std::string_view name;
  size_t bytes;
};

constexpr TypeEntry kEntries[] = {
    {DType::kBool, "BOOL", 1}, {DType::kU8, "U8", 1},   {DType::kI8, "I8", 1},     {DType::kU16, "U16", 2},
    {DType::kI16, "I16", 2},   {DType::kU32, "U32", 4}, {DType::kI32, "I32", 4},   {DType::kU64, "U64", 8},
    {DType::kI64, "I64", 8},   {DType::kF16, "F16", 2}, {DType::kBF16, "BF16", 2}, {DType::kF32, "F32", 4},
    {DType::kF64, "F64", 8},
};

const TypeEntry& entry_of(DType dtype) { return kEntries[static_cast<size_t>(dtype)]; }

constexpr bool entries_in_enum_order() {
  for (size_t i = 0; i < std::size(kEntries); ++i) {
    if (static_cast<size_t>(kEntries[i].dtype) != i) return false;
  }
  return true;
}
static_assert(entries_in_enum_order());

}  // namespace

size_t size_of(DType dtype) { return entry_of(dtype).bytes; }

std::string_view safetensors_name(DType dtype) { return entry_of(dtype).name; }

DType dtype_of_safetensors_name(std::string_view name, std::string_view where) {
  for (const TypeEntry& entry : kEntries) {
    if (entry.name == name) return entry.dtype;
  }
  fail(where, "dtype must be one of BOOL, U8, I8, U16, I16, U32, I32, U64, I64, F16, BF16, F32, F64, got {}",
       printable(name));
}

std::string_view full_type_name(std::string_view name) {
  return name == "bf16" ? "bfloat16" : name == "fp16" ? "float16" : name == "fp32" ? "float32" : name;
}

}  // namespace rf::io
