/* Dropout with a counter-based generator (Philox4x32-10, Salmon et al. 2011): nothing is stored for the backward, which
 * calls the same function on the gradient. The mask depends only on (seed, stream, element index), not on the number of
 * threads, the instruction set or the element type, and a resumed run draws the same masks.
 *
 *   y[i] = keep(i) ? x[i] / (1 - p') : 0         p' = round(65536 p) / 65536
 *
 * Block j = i / 8 of eight elements uses the 128-bit counter (j low, j high, stream low, stream high) under the 64-bit
 * key seed; its four 32-bit words give eight 16-bit numbers, low half first, and element i is dropped if its number is
 * below round(65536 p).
 */
#ifndef RF_DROPOUT_H_
#define RF_DROPOUT_H_

#include "rf/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* x, y: [count] contiguous; y == x works in place. p in [0, 1 - 2^-17). */
RF_API rf_status rf_dropout(rf_dtype dtype, const void* x, void* y, int64_t count, double p, uint64_t seed,
                            uint64_t stream);

#ifdef __cplusplus
}
#endif
#endif
