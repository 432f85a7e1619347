/* The terms of attention, each in one line of a list, and their equation. For batch entry b, query head h, query m at
 * position p_m and key n at position p_n (arXiv 2104.09864 Eq. 2-16 and the papers they name):
 *
 *   score(m,n) = s * [ ((R^q_m q_m + u) * G[r]) . (R^k_n k_n)  +  (q_m + w) . K[r]  +  k_n . Q[r] ]  +  pos(m,n)
 *                + kappa_n + P[m,n]
 *   pos(m,n)   = row[h] if row is set and p_m = 0,  else col[h] if col is set and p_n = 0,
 *                else b[r] + s * a[p_m] . c[p_n]
 *   out_m      = sum_n softmax_n(score(m,n)) * ( R^v_n v_n + V[r] )
 *   r          = clamp(p_m - p_n, lo, hi) - lo                       each of K, Q, V, b and G has its own lo and hi
 *
 * A term that is not set is absent: R and G are 1, everything else 0. The sum runs over the keys that mask and window
 * allow.
 *
 * RF_ATTENTION_TERMS expands a macro for each term, by its kind. From it follow the members of rf_attention_args and
 * rf_attention_grads, the arguments and gradients of PyTorch's operator, the members and the dictionary of ops::Terms,
 * and every check of shapes.
 *
 *   ROTATION(name, symbol, side)           angles of Query, Key or Value, [1 or B, T or S, R/2], or with rows for
 *                                          each head of the side, [1 or B, T or S, H or Hk, R/2]
 *   TABLE(name, symbol, width)             rows by distance, [1 or H, hi - lo + 1, width] with width HeadDim, ValueDim,
 *                                          One or HeadDimOrOne
 *   NUMBERS(name, symbol, width)           [H, width], width One or HeadDim
 *   PAIR(name, symbol, name, symbol)       rows by position for queries and for keys, [H,P,D], set together
 *   SCORES(name, symbol, rows)             numbers of tokens that are added to scores, independent of positions: [1 or
 *                                          B, 1 or H, S] for rows One, [1 or B, 1 or H, T, S] for rows Queries
 */
#ifndef RF_ATTENTION_TERMS_H_
#define RF_ATTENTION_TERMS_H_

#define RF_ATTENTION_FIRST_TERMS(ROTATION, TABLE, NUMBERS, PAIR, SCORES) \
  ROTATION(query, "R^q", Query)                                          \
  ROTATION(key, "R^k", Key)                                              \
  ROTATION(value, "R^v", Value)                                          \
  NUMBERS(content_bias, "u", HeadDim)                                    \
  NUMBERS(position_bias, "w", HeadDim)                                   \
  TABLE(key_table, "K", HeadDim)                                         \
  TABLE(query_table, "Q", HeadDim)                                       \
  TABLE(value_table, "V", ValueDim)                                      \
  TABLE(bias, "b", One)                                                  \
  TABLE(gate, "G", HeadDimOrOne)                                         \
  PAIR(position_query, "a", position_key, "c")                           \
  NUMBERS(reset_row, "row", One)                                         \
  NUMBERS(reset_col, "col", One)

/* Later terms, whose members are at the end of the C structs, so the layout is the same for callers of any version. */
#define RF_ATTENTION_LATER_TERMS(ROTATION, TABLE, NUMBERS, PAIR, SCORES) \
  SCORES(key_score, "kappa", One)                                        \
  SCORES(pair_bias, "P", Queries)

#define RF_ATTENTION_TERMS(ROTATION, TABLE, NUMBERS, PAIR, SCORES) \
  RF_ATTENTION_FIRST_TERMS(ROTATION, TABLE, NUMBERS, PAIR, SCORES) \
  RF_ATTENTION_LATER_TERMS(ROTATION, TABLE, NUMBERS, PAIR, SCORES)

/* For uses of the list that ignore a kind. */
#define RF_NO_TERM(...)

#endif
