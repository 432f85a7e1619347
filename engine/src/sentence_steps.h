// The steps of sentence-transformers after a transformer or its pooling, on rows of vectors (sentence_modules.h).
#pragma once

#include <cstdint>
#include <vector>

#include "sentence_modules.h"

namespace rf::engine {

// x = x / |x|, in float64.
void normalize(float* x, int64_t count);

// The columns after the steps. Throws ArgumentError for a step that reads another number.
int64_t width_after(const std::vector<SentenceStep>& steps, int64_t width);
// A step that keeps the number of columns, in place.
void change(const SentenceStep& step, int64_t rows, int64_t columns, float* x);
// Applies all steps to rows of `columns` columns; returns the columns of the result.
int64_t apply(const std::vector<SentenceStep>& steps, int64_t rows, int64_t columns, std::vector<float>& x);

}  // namespace rf::engine
