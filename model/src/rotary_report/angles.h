// How wrong angles are that are not exact.
#pragma once

#include "rf/model/rotary_report.h"

namespace rf {

enum class AngleForm {
  kFloat32,            // float32(position) * float32(frequency), as transformers forms them
  kBfloat16Positions,  // positions rounded to bfloat16, then exact
  kFloat16Positions,
};

// The greatest error of cos and sin over the last positions of a sequence of that many tokens, at most 4096 of them.
AngleError angle_error(const RopeSpec& spec, AngleForm form, int64_t length);

}  // namespace rf
