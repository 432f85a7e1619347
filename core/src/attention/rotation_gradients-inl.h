// Gradients of cos and sin: with y = R x and dy the gradient of y, pair (i, j) of a vector has
//
//   dcos = dy_i x_i + dy_j x_j        dsin = dy_j x_i - dy_i x_j
//
// Each head of the side writes its rows; rows that heads or entries share are summed afterwards (fused.cpp).
#if defined(RF_CORE_ATTENTION_ROTATION_GRADIENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RF_CORE_ATTENTION_ROTATION_GRADIENTS_INL_H_
#undef RF_CORE_ATTENTION_ROTATION_GRADIENTS_INL_H_
#else
#define RF_CORE_ATTENTION_ROTATION_GRADIENTS_INL_H_
#endif

#include "hwy/highway.h"
#include "rf/attention.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

// The gradients of the first token of a range, and the stride between tokens.
struct RotationGradient {
  float *cos = nullptr, *sin = nullptr;  // nullptr: not wanted
  int64_t step = 0;

  RotationGradient(void* cos_gradient, void* sin_gradient, int64_t pairs, int64_t heads, int64_t row)
      : step(heads * pairs) {
    if (cos_gradient != nullptr) cos = static_cast<float*>(cos_gradient) + row * pairs;
    if (sin_gradient != nullptr) sin = static_cast<float*>(sin_gradient) + row * pairs;
  }
  bool wanted() const { return cos != nullptr || sin != nullptr; }
};

// rows: vectors before the rotation; gradients: of the rotated vectors; both with `stride` floats between vectors.
inline HWY_NOINLINE void write_rotation_gradients(rf_rope_layout layout, int64_t pairs, int64_t tokens,
                                                  const float* rows, int64_t row_stride, const float* gradients,
                                                  int64_t stride, const RotationGradient& to) {
  const bool neighbours = layout == RF_ROPE_PAIRS;
  for (int64_t t = 0; t < tokens; ++t, rows += row_stride, gradients += stride) {
    for (int64_t p = 0; p < pairs; ++p) {
      const int64_t i = neighbours ? 2 * p : p, j = neighbours ? i + 1 : i + pairs;
      if (to.cos != nullptr) to.cos[t * to.step + p] = gradients[i] * rows[i] + gradients[j] * rows[j];
      if (to.sin != nullptr) to.sin[t * to.step + p] = gradients[j] * rows[i] - gradients[i] * rows[j];
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#endif
