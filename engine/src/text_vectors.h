// Computations of text vectors outside the transformer and the steps on its rows (rf/engine/embedder.h).
#pragma once

#include <span>

#include "sentence_modules.h"

namespace rf::engine {

// Moves the rows of the `count` non-empty sequences to their places among all rows; rows of empty sequences are zeros.
void spread_rows(std::span<const int64_t> offsets, int64_t count, int64_t columns, float* rows);

// Vectors of texts without a transformer: means of rows, or the weights of the tokens that occur.
void look_up(const SentenceModules& modules, const Tokens& tokens, float* out);

// The largest weight of each token that occurs, without tokens of `left_out`. stride: between weights.
SparseVector sparse_of_tokens(std::span<const int32_t> ids, const float* weights, int64_t stride,
                              std::span<const int32_t> left_out, int64_t max_active);

}  // namespace rf::engine
