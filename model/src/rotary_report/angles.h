// Errors of inexact angles.
#pragma once

#include "rf/model/rotary_report.h"

namespace rf {

enum class AngleForm {
  kFloat32,            // float32(position) * float32(frequency), as in transformers
  kBfloat16Positions,  // positions rounded to bfloat16, then exact
  kFloat16Positions,
};

// The largest error of cos and sin over the last (at most 4096) positions of a sequence of that many tokens.
AngleError angle_error(const RopeSpec& spec, AngleForm form, int64_t length);

}  // namespace rf
