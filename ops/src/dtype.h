// Element types of PyTorch as core's.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

#include "rf/status.h"

namespace rf::ops {

// nullopt for types that the kernels do not support.
inline std::optional<rf_dtype> core_dtype(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float: return RF_F32;
    case c10::ScalarType::Double: return RF_F64;
    case c10::ScalarType::BFloat16: return RF_BF16;
    case c10::ScalarType::Half: return RF_F16;
    default: return std::nullopt;
  }
}

}  // namespace rf::ops
