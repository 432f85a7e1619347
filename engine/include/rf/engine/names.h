// The names of precisions, poolings and similarities, in options of the program and in Python.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "rf/engine/embedder.h"
#include "rf/engine/model.h"
#include "rf/engine/precision.h"

namespace rf::engine {

template <typename Value, size_t kCount>
using Names = std::array<std::pair<std::string_view, Value>, kCount>;

template <typename Value, size_t kCount>
std::string_view name_in(const Names<Value, kCount>& names, Value value) {
  return std::ranges::find(names, value, &Names<Value, kCount>::value_type::second)->first;
}

inline constexpr Names<Precision, 3> kPrecisionNames = {
    {{"float32", Precision::kFloat32}, {"bfloat16", Precision::kBfloat16}, {"int8", Precision::kInt8}}};

inline constexpr Names<CachePrecision, 3> kCachePrecisionNames = {
    {{"auto", CachePrecision::kAuto}, {"bfloat16", CachePrecision::kBfloat16}, {"int8", CachePrecision::kInt8}}};

inline constexpr Names<Pooling, 7> kPoolingNames = {{{"cls", Pooling::kCls},
                                                     {"last", Pooling::kLast},
                                                     {"max", Pooling::kMax},
                                                     {"mean", Pooling::kMean},
                                                     {"mean-sqrt-len", Pooling::kMeanSqrtLen},
                                                     {"pooler", Pooling::kPooler},
                                                     {"weighted-mean", Pooling::kWeightedMean}}};

inline constexpr Names<VectorKind, 4> kVectorNames = {{{"all", VectorKind::kAll},
                                                       {"dense", VectorKind::kDense},
                                                       {"sparse", VectorKind::kSparse},
                                                       {"tokens", VectorKind::kTokens}}};

inline constexpr Names<TextRole, 3> kRoleNames = {
    {{"document", TextRole::kDocument}, {"none", TextRole::kNone}, {"query", TextRole::kQuery}}};

inline constexpr Names<Similarity, 4> kSimilarityNames = {{{"cosine", Similarity::kCosine},
                                                           {"dot", Similarity::kDot},
                                                           {"euclidean", Similarity::kEuclidean},
                                                           {"manhattan", Similarity::kManhattan}}};

}  // namespace rf::engine
