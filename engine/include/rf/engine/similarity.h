// How similar two vectors are: the functions of sentence-transformers (similarity_fn_name). The greater, the more.
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

// Of vectors with as many elements, in float64. The cosine of a vector of zeros is 0.
RF_ENGINE_API double similarity(Similarity function, std::span<const float> a, std::span<const float> b);

}  // namespace rf::engine
