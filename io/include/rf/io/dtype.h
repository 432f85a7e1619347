// Element types of tensor files.
#pragma once

#include <cstddef>
#include <string_view>

namespace rf::io {

enum class DType { kBool, kU8, kI8, kU16, kI16, kU32, kI32, kU64, kI64, kF16, kBF16, kF32, kF64 };

size_t size_of(DType dtype);                                                     // bytes per element
std::string_view safetensors_name(DType dtype);                                  // "F32", "BF16", ...
DType dtype_of_safetensors_name(std::string_view name, std::string_view where);  // throws Error on an unknown name

// "bfloat16" for "bf16", "float16" for "fp16", "float32" for "fp32"; other names unchanged. Used wherever a user names
// a type.
std::string_view full_type_name(std::string_view name);

}  // namespace rf::io
