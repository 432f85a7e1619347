// Vaswani's sinusoids (arXiv 2104.09864 Eq. 4), p[t] = sin and cos of position * 10000^(-2t/width), with the accuracy
// of rf/rope.h, and NEZHA's table of sinusoids. An odd width ends with a sine.
#pragma once

#include <cstdint>

#include "rf/io/strict_object.h"

namespace rf {

enum class SinusoidLayout {
  kInterleaved,  // sin, cos, sin, cos, ..: Eq. 4
  kHalf,         // all sines, then all cosines (Marian, transformers' RoFormer); an odd width has one more sine
  kSineOnly,     // element j is sin(position * 10000^(-j/width))
};
SinusoidLayout read_sinusoid_layout(io::StrictObject& options);

// rows [count, width], T float or double; Position int64_t or double. Throws Error for a width above 2^19.
template <class T, class Position>
void sinusoid(const Position* positions, int64_t count, int64_t width, SinusoidLayout layout, T* rows);

// NEZHA (Wei et al. 2019, arXiv 1909.00204): rows [2 clip + 1, head_dim] for distances -clip..clip, query minus key.
// Row d is the interleaved sinusoid of clip - d, because the paper counts key minus query and its code begins at 0.
int64_t read_nezha_clip(io::StrictObject& options);
template <class T>
void nezha_rows(int64_t clip, int64_t head_dim, T* rows);

}  // namespace rf
