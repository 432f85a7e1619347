/* Row operations of a transformer between its products: norms, GELU, softmax and cross-entropy, forward and backward.
 *
 * Arrays are [rows, columns]; a row is contiguous, row r begins at data + r * stride, stride >= columns. Any extent may
 * be 0. dtype is the type of the arrays; parameters (bias, gamma, beta), their gradients and numbers per row are double
 * for RF_F64 and float for every other dtype. RF_F64 is computed by plain loops on one thread, as the reference; the
 * others use float32 arithmetic, and an element is rounded once, when it is written. A result may be written over an
 * input of the same size and stride, unless a comment says otherwise.
 *
 * All results have the same bits for any number of threads: rows are independent, and sums over rows (gradients of
 * parameters) are taken in order, in chunks that depend only on the number of rows.
 */
#ifndef RF_ROWS_H_
#define RF_ROWS_H_

#include "rf/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- norms, with the sum before them in a post-norm block ----
 *
 *   s = residual + dropout(x + bias)
 *   y = (s - m) / sqrt(v + eps) * gamma + beta      m, v over the columns of a row:
 *
 *   RF_NORM_LAYER  m = mean(s), v = mean((s - m)^2)     Ba, Kiros and Hinton 2016
 *   RF_NORM_RMS    m = 0,       v = mean(s^2)           Zhang and Sennrich 2019
 *
 * NULL arguments are left out. Dropout is rf_dropout of a contiguous [rows, columns] array. Nothing is kept for the
 * backward: it draws the mask again and computes s, m and v from x and residual, which must be unchanged.
 *
 * residual, y and their gradients may have a wider type than x and its gradient, for example when products are in
 * bfloat16 and the residual stream is in float32: stream_dtype is 0 (the type of x), dtype, or RF_F32 if dtype is
 * RF_BF16 or RF_F16. */
typedef enum rf_norm_kind { RF_NORM_LAYER = 1, RF_NORM_RMS = 2 } rf_norm_kind;

typedef struct rf_norm_args {
  size_t struct_size;
  rf_dtype dtype;
  rf_norm_kind kind;
  int64_t rows, columns;
  const void* x;
  int64_t x_stride;
  const void* bias;     /* [columns] or NULL */
  const void* residual; /* or NULL */
  int64_t residual_stride;
  double dropout; /* p in [0, 1 - 2^-17) */
  uint64_t seed, stream;
  const void* gamma; /* [columns] or NULL */
  const void* beta;  /* [columns] or NULL */
  double eps;        /* >= 0 and finite */
  void* y;           /* not read by the backward */
  int64_t y_stride;
  rf_dtype stream_dtype; /* of residual, y and sum; 0: dtype */
  void* sum;             /* s, which may replace residual, or NULL; not written by the backward */
  int64_t sum_stride;
} rf_norm_args;

/* Gradients of a scalar loss, which are overwritten; NULL: not computed. */
typedef struct rf_norm_grads {
  size_t struct_size;
  const void* y; /* input: the gradient of y */
  int64_t y_stride;
  void* x; /* not the same array as residual */
  int64_t x_stride;
  void* residual;
  int64_t residual_stride;
  void *bias, *gamma, *beta; /* [columns] */
} rf_norm_grads;

RF_API rf_status rf_norm_forward(const rf_norm_args* args);
RF_API rf_status rf_norm_backward(const rf_norm_args* args, const rf_norm_grads* grads);

/* ---- GELU and SiLU (Hendrycks and Gimpel 2016), and their gated units (Shazeer 2020, arXiv 2002.05202) ----
 *
 *   y = gelu(x + bias) * factor
 *
 *   RF_GELU_ERF   gelu(t) = t (1 + erf(t / sqrt 2)) / 2
 *   RF_GELU_TANH  gelu(t) = t (1 + tanh(sqrt(2 / pi) (t + 0.044715 t^3))) / 2
 *   RF_GELU_SILU  gelu(t) = t / (1 + exp(-t))
 *
 * The tails are computed without cancellation: the error is a few ulp of the result times 1 + t^2. */
typedef enum rf_gelu_form { RF_GELU_ERF = 1, RF_GELU_TANH = 2, RF_GELU_SILU = 3 } rf_gelu_form;

typedef struct rf_gelu_args {
  size_t struct_size;
  rf_dtype dtype;
  rf_gelu_form form;
  int64_t rows, columns;
  const void* x;
  int64_t x_stride;
  const void* bias; /* [columns] or NULL */
  void* y;          /* not read by the backward */
  int64_t y_stride;
  const void* factor; /* [rows, columns], or NULL: 1; NULL in the backward. y may be x or factor */
  int64_t factor_stride;
} rf_gelu_args;

typedef struct rf_gelu_grads {
  size_t struct_size;
  const void* y; /* input: the gradient of y */
  int64_t y_stride;
  void* x; /* NULL: not wanted */
  int64_t x_stride;
  void* bias; /* [columns]; NULL: not wanted */
} rf_gelu_grads;

RF_API rf_status rf_gelu_forward(const rf_gelu_args* args);
RF_API rf_status rf_gelu_backward(const rf_gelu_args* args, const rf_gelu_grads* grads);

/* ---- softmax ----
 *
 *   y[c] = exp(x[c]) / sum_j exp(x[j])        a row of -infinity gives 0, and gradient 0
 *
 * The backward reads y and not x. */
typedef struct rf_softmax_args {
  size_t struct_size;
  rf_dtype dtype;
  int64_t rows, columns;
  const void* x;
  int64_t x_stride;
  void* y;
  int64_t y_stride;
} rf_softmax_args;

typedef struct rf_softmax_grads {
  size_t struct_size;
  const void* y; /* input: the gradient of y */
  int64_t y_stride;
  void* x;
  int64_t x_stride;
} rf_softmax_grads;

RF_API rf_status rf_softmax_forward(const rf_softmax_args* args);
RF_API rf_status rf_softmax_backward(const rf_softmax_args* args, const rf_softmax_grads* grads);

/* ---- cross-entropy over a vocabulary ----
 *
 *   log_sum = log sum_j exp(logits[j]),  loss = log_sum - logits[target]      0 where target is ignore_index
 *
 * The forward reads the logits once and writes two numbers per row. The backward reads the log_sum of the forward, in
 * double, so that a number added to all logits of a row does not cost digits. Its result may overwrite the logits, so
 * that one array of that size suffices:
 *
 *   d logits[c] = (exp(logits[c] - log_sum) - [c = target]) d loss            0 where target is ignore_index */
typedef struct rf_cross_entropy_args {
  size_t struct_size;
  rf_dtype dtype;
  int64_t rows, columns; /* columns >= 1: the vocabulary */
  const void* logits;
  int64_t logits_stride;
  const int64_t* targets; /* [rows], each in 0..columns-1 or ignore_index */
  int64_t ignore_index;
  void* loss;      /* [rows]; not read by the backward */
  double* log_sum; /* [rows] */
} rf_cross_entropy_args;

typedef struct rf_cross_entropy_grads {
  size_t struct_size;
  const void* loss;    /* given: row r's is loss[r * loss_stride] */
  int64_t loss_stride; /* >= 0; 0: one number for all rows */
  void* logits;
  int64_t logits_stride;
} rf_cross_entropy_grads;

RF_API rf_status rf_cross_entropy_forward(const rf_cross_entropy_args* args);
RF_API rf_status rf_cross_entropy_backward(const rf_cross_entropy_args* args, const rf_cross_entropy_grads* grads);

#ifdef __cplusplus
}
#endif
#endif
