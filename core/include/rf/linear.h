/* The linear layer, forward and backward:
 *
 *   y = act(x W^T + b)                              x [rows, in], W [out, in] as in torch, b [out], y [rows, out]
 *   dx = dy W,  dW = dy^T x,  db = sum over rows of dy        where act is the identity
 *
 * A row of an array is contiguous, row r begins at data + r * stride. Any extent may be 0: a sum over nothing is 0. W
 * and dW may be float32 while the other arrays have 16 bits, so that training keeps one copy of its weights:
 * weight_dtype is 0 (the type of x), dtype, or RF_F32 if dtype is RF_BF16 or RF_F16; W is then rounded to bfloat16 if
 * the products use bfloat16.
 *
 * Sums are in float32 for every type of the arrays, and an element is rounded once, when it is written; RF_F64 is
 * computed by plain loops on one thread, as the reference. RF_BF16 is multiplied in bfloat16 by AMX, by AVX512_BF16 on
 * AMD, and by AVX512_BF16 on Intel without AMX for packed weights only, since Intel's instruction is slower than float
 * products; these products treat operands below 2^-126 in magnitude as zero.
 *
 * Determinism: an element of y, dx or dW is one sum over its terms in order, divided only by the shape and computed by
 * one thread, so it has the same bits for any number of threads; db is summed in chunks of 256 rows, then over the
 * chunks in order.
 *
 * Packed weights use one product for any number of rows, so a row of y has the same bits whatever the other rows of the
 * call. A call allocates nothing once each of its threads has work space from an earlier call.
 */
#ifndef RF_LINEAR_H_
#define RF_LINEAR_H_

#include "rf/rows.h"
#include "rf/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The identity, or a form of rf_gelu (rf/rows.h). */
typedef enum rf_linear_activation {
  RF_LINEAR_NONE = 0,
  RF_LINEAR_GELU_ERF = 1,
  RF_LINEAR_GELU_TANH = 2
} rf_linear_activation;

/* W in the order in which the products read it, for weights that serve many calls. It holds a copy. */
typedef struct rf_linear_packed rf_linear_packed;

typedef struct rf_linear_args {
  size_t struct_size;
  rf_dtype dtype;
  rf_linear_activation activation; /* RF_LINEAR_NONE for the backward */
  int64_t rows, in, out;
  const void* x; /* not read by the backward unless the gradient of W is wanted */
  int64_t x_stride;
  const void* weight; /* NULL where packed is set; not read by the backward unless the gradient of x is wanted */
  int64_t weight_stride;
  const rf_linear_packed* packed; /* of the same in and out, and dtype unless int8 or blocks; NULL for the backward */
  const void* bias;               /* float (RF_F64: double), or NULL; not read by the backward */
  void* y;                        /* overlaps no input; not read by the backward */
  int64_t y_stride;
  rf_dtype weight_dtype; /* of weight and its gradient; 0: dtype */
  rf_gelu_form gate;     /* 0, or that of a gated unit, below */
} rf_linear_args;

/* With `gate`, rows of W and elements of b come in groups of 64, 32 of a gate g and the 32 of its factor u, and y
 * [rows, out / 2] is gelu(g) u in this form: for the forward with packed weights other than int8 and no activation. */

/* Gradients of a scalar loss, which are overwritten; NULL: not computed. */
typedef struct rf_linear_grads {
  size_t struct_size;
  const void* y; /* input: the gradient of y */
  int64_t y_stride;
  void* x;
  int64_t x_stride;
  void* weight;
  int64_t weight_stride;
  void* bias; /* float (RF_F64: double) */
} rf_linear_grads;

RF_API rf_status rf_linear_forward(const rf_linear_args* args);
RF_API rf_status rf_linear_backward(const rf_linear_args* args, const rf_linear_grads* grads);

/* Packs weight [out, in] and keeps no reference to it. A packed weight becomes invalid when rf_set_target changes
 * the element format; later calls with it are refused. */
RF_API rf_status rf_linear_pack(rf_dtype dtype, int64_t in, int64_t out, const void* weight, int64_t weight_stride,
                                rf_linear_packed** packed);
RF_API void rf_linear_packed_destroy(rf_linear_packed* packed); /* NULL is allowed */

/* Packs weight [out, in] to bytes, with a scale for each output, for the forward of RF_F32, RF_BF16 and RF_F16:
 *
 *   scale_j = max(max_t |c_t W[j][t]| / 127, 2^-126)        W8[j][t] = nearest(c_t W[j][t] / scale_j)
 *
 * A call quantises each row of x separately; min and max are taken over x[t] / c_t and 0, and scale is at least 2^-126:
 *
 *   scale = max / 255 - min / 255      zero = nearest(-min (1 / scale))
 *   x8[t] = min(nearest(x[t] (1 / c_t) (1 / scale)) + zero, 255)
 *
 *   y[j] = act(sum_t (x8[t] - zero) W8[j][t] * scale_j * scale + b[j])
 *
 * The zero point uses all 256 steps even if a row is not symmetric, as after GELU, and 0 is exact. A row shares one
 * scale, so inputs that are always larger than others would waste its steps; c evens them out (SmoothQuant, arXiv
 * 2211.10438). input_scales [in], in 2^-64..2^64, need not outlive the call; NULL stands for ones. Quotients, products
 * and sums are float32, evaluated in the order written, and nearest() rounds ties to even. The sum over t is exact: in
 * <= 2^16. An infinity or NaN in a row of x makes the whole row of y NaN; an infinity or NaN in weight is refused.
 *
 * A row of y depends only on that row of x. It has the same bits for any number of rows or threads and on every
 * instruction set, except for differences in GELU and in the rounding to 16 bits of numbers below 2^-126. Such a weight
 * serves every dtype and instruction set, and RF_KERNEL=ref. */
RF_API rf_status rf_linear_pack_int8(int64_t in, int64_t out, const float* weight, int64_t weight_stride,
                                     const float* input_scales, rf_linear_packed** packed);

/* Types of blocks in GGUF files, by ggml's numbers. */
typedef enum rf_block_type {
  RF_BLOCK_F16 = 1,
  RF_BLOCK_Q4_0 = 2,
  RF_BLOCK_Q4_1 = 3,
  RF_BLOCK_Q5_0 = 6,
  RF_BLOCK_Q5_1 = 7,
  RF_BLOCK_Q8_0 = 8,
  RF_BLOCK_Q2_K = 10,
  RF_BLOCK_Q3_K = 11,
  RF_BLOCK_Q4_K = 12,
  RF_BLOCK_Q5_K = 13,
  RF_BLOCK_Q6_K = 14,
  RF_BLOCK_IQ4_NL = 20,
  RF_BLOCK_IQ4_XS = 23,
  RF_BLOCK_BF16 = 30,
  RF_BLOCK_MXFP4 = 39
} rf_block_type;

/* Packs a weight as a GGUF file stores it and keeps its bits, in 1.06 times the bytes at most (and whole blocks of 64
 * outputs), for the forward of RF_F32, RF_BF16 and RF_F16. rows: [out], pointers of any alignment to rows of in
 * elements; in is a multiple of the type's block, 1, 32 or 256. An element in float32 is what the format defines,
 * rounded once, and products are in float32: y has the bits that RF_F32 weights with the same elements give it, with
 * `gate` too, on every instruction set. Such a weight serves every instruction set, and RF_KERNEL=ref. Elements that
 * are infinite or not a number are refused. */
RF_API rf_status rf_linear_pack_blocks(rf_block_type type, int64_t in, int64_t out, const void* const* rows,
                                       rf_linear_packed** packed);

/* The code that computes a layer of this type and shape: "ref", the float64 loops, for RF_F64 and with RF_KERNEL=ref;
 * else "plain", whose products of RF_BF16 are in AMX tiles if rf_target() is AVX3_AMX. Returns "" and sets
 * rf_last_error() for an invalid type or extent. */
RF_API const char* rf_linear_backend(rf_dtype dtype, int64_t rows, int64_t in, int64_t out);

#ifdef __cplusplus
}
#endif
#endif
