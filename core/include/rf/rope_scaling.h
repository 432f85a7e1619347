/* Frequencies of rotary embedding under the scalings that stretch a model beyond its training length.
 *
 * With theta_i = base^(-2i/R), i < R/2, the frequency of pair i is, by type:
 *
 *   NONE          theta_i
 *   LINEAR        theta_i / factor                                   (position interpolation, arXiv 2306.15595)
 *   NTK           base'^(-2i/R), base' = base factor^(R/(R-2))       ("NTK-aware", bloc97 2023)
 *   DYNAMIC       base'^(-2i/R), base' = base (factor L/L0 - (factor - 1))^(R/(R-2)), L = max(length, L0)
 *   YARN          theta_i ((1 - ramp_i) + ramp_i / factor)           (arXiv 2309.00071)
 *                   ramp_i = clamp((i - low) / (high - low), 0, 1), high + 0.001 for high where high = low
 *                   low = max(at(beta_fast), 0), high = min(at(beta_slow), R - 1), with truncate floor and ceil of at()
 *                   at(beta) = R ln(L0 / (2 pi beta)) / (2 ln base)
 *   LONGROPE      theta_i / divisors[i]                              (arXiv 2402.13753)
 *   LLAMA3        theta_i         where L0 theta_i / (2 pi) > high_freq_factor
 *                 theta_i/factor  where L0 theta_i / (2 pi) < low_freq_factor
 *                 ((1 - t) / factor + t) theta_i between, t = (L0 theta_i/(2 pi) - low_freq_factor)
 *                                                             / (high_freq_factor - low_freq_factor)
 *   PROPORTIONAL  theta_i / factor for i < rotating_pairs, 0 for the others
 *
 * L0 is trained_length. These are the formulas of transformers' modeling_rope_utils (which lacks NTK), computed in
 * double-double: the relative error is below 1e-28, so angles are correct to position 2^31 and beyond. The caller
 * applies attention factors (a scale of cos and sin).
 */
#ifndef RF_ROPE_SCALING_H_
#define RF_ROPE_SCALING_H_

#include "rf/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rf_rope_scaling_type {
  RF_ROPE_SCALING_NONE = 1,
  RF_ROPE_SCALING_LINEAR = 2,
  RF_ROPE_SCALING_NTK = 3,
  RF_ROPE_SCALING_DYNAMIC = 4,
  RF_ROPE_SCALING_YARN = 5,
  RF_ROPE_SCALING_LONGROPE = 6,
  RF_ROPE_SCALING_LLAMA3 = 7,
  RF_ROPE_SCALING_PROPORTIONAL = 8
} rf_rope_scaling_type;

/* Fields that the type's formula does not name are not read. */
typedef struct rf_rope_scaling {
  size_t struct_size;
  rf_rope_scaling_type type;
  double base;                              /* finite, > 0; YARN: > 1 */
  double factor;                            /* finite, >= 1 */
  int64_t trained_length;                   /* L0 >= 1, tokens */
  int64_t length;                           /* L, tokens */
  double beta_fast, beta_slow;              /* rotations over L0: beta_fast >= beta_slow > 0 */
  int32_t truncate;                         /* 0 or 1 */
  double low_freq_factor, high_freq_factor; /* 0 < low < high */
  const double* divisors;                   /* [R/2], finite, > 0 */
  int64_t rotating_pairs;                   /* 0..R/2 */
} rf_rope_scaling;

/* hi[i] + lo[i], i < rotary_dim/2. rotary_dim: R, even, 2..2^20; NTK and DYNAMIC: from 4. */
RF_API rf_status rf_rope_scaled_frequencies(const rf_rope_scaling* scaling, int64_t rotary_dim, double* hi, double* lo);

#ifdef __cplusplus
}
#endif
#endif
