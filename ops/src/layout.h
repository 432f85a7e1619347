// Layouts of pairs by name.
#pragma once

#include <c10/util/Exception.h>

#include <string_view>

#include "rf/rope.h"

namespace rf::ops {

// where: the operator's name in the error.
inline rf_rope_layout parse_layout(const char* where, std::string_view layout) {
  if (layout == "pairs") return RF_ROPE_PAIRS;
  if (layout == "halves") return RF_ROPE_HALVES;
  TORCH_CHECK_VALUE(false, "[", where,
                    "] layout must be \"pairs\" (RoFormer, GPT-J) or \"halves\" (GPT-NeoX, Llama), got \"", layout,
                    "\"");
}

}  // namespace rf::ops
