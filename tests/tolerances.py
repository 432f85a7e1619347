"""Every tolerance of the Python tests, with its reason. C++ has tests/tolerances.h."""

import numpy as np

# Rotary embedding: |error| <= FACTOR * eps(dtype) * |scale| * (|x_a| + |x_b|). Table entries are rounded once (half an
# eps each), two products and a sum follow (one eps together); the rest is for the reference's own rounding in float64.
ROPE_EPS_FACTOR = 2.0

# Low precision: our error against float64 is at most this many times that of the plain torch formula in the same dtype.
LOW_PRECISION_RATIO = 2.0

# T1, float64: |a - b| <= ATOL + RTOL |b|. T2, float32 primitives on values O(1).
T1_ATOL, T1_RTOL = 1e-12, 1e-12
T2_ATOL, T2_RTOL = 2e-6, 1e-5

# Compiled float64 code may order sums and contract products differently.
COMPILED_RTOL = 1e-10

# The same in float32, for a function of some dozen operations, and for its gradient or a whole small model.
COMPILED_F32 = dict(rtol=1e-5, atol=1e-6)
COMPILED_GRADIENT_F32 = dict(rtol=1e-4, atol=1e-5)
# Products in bfloat16: two roundings of 8 bits.
COMPILED_BF16 = dict(rtol=0.02, atol=0.02)

# Dropout multiplies by a reciprocal rounded once, and rounds the product.
DROPOUT_EPS_FACTOR = 1.0

# A sample mean of n Bernoulli(p) draws: five standard deviations, one run in a million fails by chance.
SIGMAS = 5.0

# The stored sin|cos table: both sides compute in float64 and round once; two libraries' sin may straddle a tie.
POSITION_TABLE_ULPS = 1


def eps(dtype: str) -> float:
    """Distance from 1 to the next number of a NumPy dtype."""
    return float(np.finfo(dtype).eps)


# T4, a whole float32 model against transformers: the largest and the mean difference, relative to the largest
# reference value. In float64 the two differ by the order of summation only.
T4_MAX, T4_MEAN = 2e-5, 2e-6
# Rank correlation of 40 predictions of which a few that are equal in float32 on one side differ in the last bit on the
# other: an exchange of two neighbours' ranks moves it by 2e-4.
RANKS_OF_NEAR_TIES = 1e-3
MODEL_F64 = 1e-10
# Of the change that rounding keys and values makes, what may differ from it: float32 numbers near a tie that two
# programs round to neighbours.
CACHE_ROUNDING_SHARE = 0.2
# Memory of a cache as it grows, to what its rows have: pages of each head, and rows of the rotation.
CACHE_MEMORY_SHARE = 1.25
# bfloat16 keeps 8 bits of a number and int8 a little less of a row: errors of some 1e-2 of a vector, whose cosine is
# 1 - 1e-4 / 2.
LOW_PRECISION_COSINE = 0.999

# Gradients against transformers, relative to the largest gradient of the tensor; for tensors whose gradients
# nearly vanish, to this share of the largest gradient of the model.
GRADIENT_F32, GRADIENT_F64 = 1e-4, 1e-9
GRADIENT_FLOOR = 1e-2

# With rotated values, moving a sequence changes its hidden states at least by this much (4e-3 in transformers).
ROTARY_VALUE_SHIFT = 1e-4

# ---- core: rotary tables (R-CONV-12) ----
# Frequencies carry about 106 bits; exponents to 700 cost a few of them.
FREQUENCY_RELATIVE = 1e-28
# Half an ulp of 1 in float32; an ulp of 1 in float64.
TABLE_F32 = 6e-8
TABLE_F64 = 2.3e-16

# ---- nn: attention over terms ----

# ---- core/ref: attention ----
# Two float64 computations of one result of order 1..10, sums of some dozen terms in another order.
PATHS_F64 = 1e-13

# ---- ops: the fused kernel of attention ----
# Float32 sums of some dozen terms of magnitude up to 10 against float64, absolute and relative.
FUSED_F32 = 5e-5
# Arrays of the size of a dense pair bias that forward and backward add: its gradient, and q, k, v, their gradients and
# work space of a tenth each at the size of the test.
PAIR_BIAS_ARRAYS = 1.6

# ---- ops: rotation by rows ----
# The gradient of a cosine or sine sums some hundred float32 products of magnitude 1 over heads and sequences.
ROW_GRADIENT_ATOL = 1e-4

# ---- model and nn: scalings and rotary encodings ----
# Rows of a scaled rotation, relative to its attention factor: one rounding to float32 (R-CONV-12); in
# float64 the rounding of cos or sin, that of the scale, and that of their product.
SCALED_F32 = 1e-7
SCALED_F64 = 6e-16
# Sums of 24 float64 products of normal numbers, magnitudes of xPos up to 30 among them.
SUM_ATOL = 1e-11
# 16 bits over the longest sequence of xPos, in eps: queries and keys turned by rows up to the end of the range are
# rounded, and scores amplify that; 5 was measured.
XPOS_EPS = 10.0

# ---- ops: linear attention ----
# As kLinearAttentionEps of tolerances.h: 16 eps of the largest result, or of 1.
LINEAR_KERNEL_F32 = 16 * 2.0**-23
# Radians a token: cosines of the distances of cases stay positive, so that rotated denominators do not cancel.
LINEAR_KERNEL_ANGLE = 0.01

# ---- nn: linear attention ----
# The same sums in another order. A rotated denominator cancels: it was down to a thousandth of its terms here.
LINEAR_F64 = 1e-11
LINEAR_ROTATED_DENOMINATOR = 1e-9
# Rotated numerators cancel over hundreds of keys.
LINEAR_LONG_F64 = 1e-9
# float32: a few roundings of sums over a handful of keys, divided by denominators of about 1, relative to the values.
LINEAR_F32 = 2e-5
# The kernels on 70 keys, relative to the largest result or 1. 1.2e-5 was measured, for relu, by the explicit way too: a
# query with one product just above 0 has all its weights from that one.
LINEAR_FUSED_F32 = 4e-5
# In eps of 16 bits: a result is rounded once, and a gradient of q or k has products with rounded outputs besides.
LINEAR_FUSED_EPS = 2.0
# What Shen's attention must at least differ by from Eq. 18's (4.6e-2 on random data).
SHEN_GAP = 1e-2
# Memory at twice the tokens; a first chunk costs less than the others, which have sums before them.
LINEAR_GROWTH = 2.01
# Rows of a QR factor in float64.
ORTHOGONAL = 1e-6

# ---- nn: encodings with tables and biases ----
# Standard deviation of parameters in comparisons: initial values are too small for a wrong row to show.
PERTURBED = 0.3
# What different rows differ by at least; what an encoding must break permutation equivariance by (R-ATT-03).
VISIBLE = 1e-3

# ---- nn: T5, TUPE, Transformer-XL, DeBERTa ----
# T3, one float32 attention layer.
T3_ATOL, T3_RTOL = 1e-5, 1e-4
# Rotary frequencies that transformers computes in float32: a power and a quotient, each off by an ulp or so (1.2e-7).
FLOAT32_FREQUENCIES = 1e-6
# DisentangledSelfAttention divides by the square root of a float32 number, whatever the dtype of the model: scores of
# about 10 are off by 6e-8 of themselves. Relative to the largest output; 5e-8 was measured.
FLOAT32_SCALE = 6e-7

# FIRE's float32 gradients, sums over all pairs, relative to the largest of a parameter.
FIRE_GRADIENT_F32 = 1e-4
# Results of float32 parameters beside those of the same as float64.
CAST_PARAMETERS = dict(rtol=1e-6, atol=1e-6)
# PaTH: float64 products of reflections in another order. Scores of a float32 model whose hidden states are of order 1.
PATH_SCORES, PATH_LOGITS = 1e-10, dict(atol=1e-4, rtol=1e-4)
# Parts of scores of float64 vectors, whose sum gives the weights; and biases of float32 models as parts.
SCORE_PARTS, SCORE_PARTS_F32 = dict(atol=1e-9, rtol=1e-9), dict(atol=1e-6, rtol=1e-6)
# Positions below 10 that are read from float32 sums of hidden states.
READ_POSITIONS = 1e-6

# ---- nn: models ----
# Streamed linear attention in float32: sums are taken in another order, and maxima are rescaled.
STREAMED_RTOL = 1e-4
# Two layers in bfloat16 with perturbed weights, relative to the largest hidden state: a dozen roundings of 2^-9, of
# which attention amplifies some; 1.6e-2 was measured over all encodings.
BF16_MODEL = 5e-2

# Gradients and outputs under autocast beside those in float32, relative to the largest of a tensor or to the norm over
# a model: products of numbers rounded to 8 bits, of which attention amplifies some; 2.3e-2 was measured over models.
AUTOCAST_GRADIENT = 0.1
# One attention in bfloat16 by two paths, values to 4.
BF16_ATTENTION = 5e-2

# ---- cli ----
# A mean in float64 rounded once to float32.
MEAN_F32 = 6e-8
# Scores of vectors of 24 elements, a product or a sum of ten: the program sums in float64, the package in float32.
# 1e-7 was measured.
SCORE_F32 = 1e-6
# The loss of a model that has hardly been trained beside that of a guess.
UNTRAINED_LOSS = 0.2

# Norms, GELU, softmax, cross-entropy and linear layers as operators: some tens of eps times the magnitude of a term, a
# few, times the length of the longest sum, which tests give.
ROWS_F32, ROWS_F64 = 1e-5, 1e-13

# The bag-of-words baseline: closed forms in float64, summed in another order than scikit-learn's.
BAG_OF_WORDS = 1e-9

# ---- cli: compare ----
# The loss of token frequencies in double, from counts that two commands make.
STATISTICS_RTOL = 1e-9

# Weights after 6 steps at a rate of 1e-30, which moves a weight by 1e-30 or so in a step.
STILL_WEIGHTS = 1e-28

# ---- cli: doctor ----
# Factors and frequencies of the report against their formulas in float64.
GOLDEN_SCORE_RTOL = 1e-13
# Angles of up to 131072 radians in float64 are off by half an ulp of that and by the rounding of the frequency.
DOCTOR_FLOAT64_ANGLES = 1e-10
# Products of float32 rows with normal numbers, for each element of a sum: angles of up to 31 radians are off by 1e-6.
DOCTOR_SCORES = 1e-5

# ---- jobs of several processes ----
# Gradients of some dozen micro-batches are added in another order: an eps or two of float32 in a gradient, which Adam
# turns into as much of a weight's update; over 12 steps of a rate of 1e-3 and 400 metrics.
JOB_RTOL = 1e-6
# Moments of Adam, sums of such gradients and of their squares.
MOMENTS = dict(rtol=1e-5, atol=1e-9)
# Sums of gradients in bfloat16: 2^-9 of each, of updates of 12 steps of a rate of 1e-3 that Adam makes about 1 long.
JOB_BF16 = 2e-3
# Losses, printed with 6 decimals, of 20 steps at a rate of 1e-2: two halves of a batch are averaged, and Adam amplifies
# the rounding of small gradients.
FSDP_RTOL, FSDP_ATOL = 1e-4, 2e-6

# Pretraining in float32 beside float64, relative to the loss and the gradient norm of a step. A number of a pass has
# some hundred roundings of half an eps behind it, sqrt(100) * 6e-8 = 6e-7; a loss is a mean of those of some dozen
# tokens. A gradient is a product of such numbers, some of which attention amplifies.
CURVE_LOSS, CURVE_NORM = 6e-7, 6e-6
# Their weights after the 20 steps, absolute; measured 1.5e-6. The rates sum to 0.03: a part in 100 of them is 3e-4.
CURVE_WEIGHT = 3e-6
# Fine-tuning of 10 steps at a rate that changes every weight by a hundredth: each step starts from the weights that the
# ones before it left, so that the errors of ten passes add up, 10 * 6e-7. A gradient is a product of two such numbers.
TUNED_LOSS, TUNED_NORM = 10 * CURVE_LOSS, 20 * CURVE_LOSS
# A gradient that is read from weights of about 0.3 before and after a step by it: their float32 has 3e-8, gradients are
# 1e-4 and more; and its own error.
GRADIENT_OF_A_STEP = 3e-8 / 1e-4 + 2 * GRADIENT_F32

# A kernel for GPUs in float32 against float64 loops, relative to the largest: the order of a few dozen additions.
GPU_FLOAT32 = 3e-6
# log of a sum of exponentials, absolute: a few eps of scores of order 10.
GPU_LOG_SUM = 8e-6

# A model and its gradients, float32, on an emulated GPU against the CPU: sums of some hundred products in two orders.
EMULATED = 2e-4
# Losses of 6 steps in bfloat16: norms and the loss are float32 there, on the CPU they are rounded to bfloat16, 4e-3.
EMULATED_BF16 = 1e-2

# Translations of a small trained model in bfloat16 and int8: the share that equals float32's, and by how much a score
# may differ, a mean of log-probabilities.
SAME_TRANSLATIONS = 0.9
LOW_PRECISION_SCORE = 0.1
