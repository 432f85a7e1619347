// The similarity of two vectors: the functions of sentence-transformers (similarity_fn_name). Greater is more similar.
#pragma once

#include <span>

#include "rf/engine/model.h"

namespace rf::engine {

enum class Similarity {
  kCosine,
  kDot,
  kEuclidean,  // the negative distance
  kManhattan,  // the negative distance
};

// The similarity of vectors of equal size, in float64. The cosine of a vector of zeros is 0.
RF_ENGINE_API double similarity(Similarity function, std::span<const float> a, std::span<const float> b);

}  // namespace rf::engine
