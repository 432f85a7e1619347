// The four methods of Huang et al. 2020 (arXiv 2009.13658; spec R-REL-08), with a learned parameter a for each
// distance:
//
//   M1  score = s a_|j-i| (q_i . k_j)         a number for each head and absolute distance
//   M2  score = s a_(j-i) (q_i . k_j)         a number for each head and distance
//   M3  score = s sum_c q_ic a_(j-i),c k_jc   a vector for each head and distance
//   M4  score = s (q_i . k_j + q_i . a_(j-i) + k_j . a_(j-i))   a vector for each distance, shared by the heads
//
// Each layer has its own parameters. M4 without clipping is transformers' "relative_key_query" with reversed rows.
// Gates start as N(1, initializer_range), so training begins with plain attention; the vectors of M4 start as N(0,
// initializer_range). Row c + clip is for j - i = c (M1: row c for |j - i| = c); larger distances use the last row. The
// default clips nothing within max_position_embeddings.
#include <ATen/ops/arange.h>

#include <vector>

#include "clipped_distances.h"
#include "layer_parameters.h"

namespace rf::nn::posenc {

namespace {

enum class Gate { kNumberByAbsoluteDistance, kNumber, kVector };

int64_t clip_of(io::StrictObject& options, const EncodingShape& shape) {
  return options.integer("max_relative_position", shape.max_position_embeddings - 1, 0, kMaxClip);
}

class Gates : public LengthFreeEncoding {
 public:
  Gates(Gate gate, io::StrictObject& options, const EncodingShape& shape)
      : is_absolute_(gate == Gate::kNumberByAbsoluteDistance), clip_(clip_of(options, shape)) {
    rows_HCD_ = layer_parameters(*this, shape.layers, "gate", [&] {
      const int64_t rows = is_absolute_ ? clip_ + 1 : 2 * clip_ + 1;
      return drawn({shape.heads, rows, gate == Gate::kVector ? shape.head_dim : 1}, shape, /*mean=*/1);
    });
  }

  Terms compute_terms(int64_t layer, const Shared&, const Projections&) override {
    const at::Tensor& rows_HCD = rows_HCD_.at(layer);
    if (!is_absolute_) return {.gate = reversed(rows_HCD, clip_)};
    const at::Tensor distance_C = at::arange(-clip_, clip_ + 1, rows_HCD.options().dtype(at::kLong)).abs();
    return {.gate = {rows_HCD.index_select(1, distance_C), -clip_, clip_}};
  }

 private:
  bool is_absolute_;
  int64_t clip_;
  std::vector<Parameter> rows_HCD_;
};

class KeyQueryTable : public LengthFreeEncoding {
 public:
  KeyQueryTable(io::StrictObject& options, const EncodingShape& shape)
      : clip_(clip_of(options, shape)), rows_CD_(layer_parameters(*this, shape.layers, "key_query", [&] {
          return drawn({2 * clip_ + 1, shape.head_dim}, shape);
        })) {}

  Terms compute_terms(int64_t layer, const Shared&, const Projections&) override {
    const DistanceTable table = reversed(rows_CD_.at(layer)->unsqueeze(0), clip_);
    return {.key_table = table, .query_table = table};
  }

 private:
  int64_t clip_;
  std::vector<Parameter> rows_CD_;
};

// The part that the four methods share.
EncodingInfo huang_info(const char* name, const char* summary, const char* equation, const char* terms,
                        const char* parameters, const char* cost) {
  return {.name = name,
          .summary = summary,
          .equation = equation,
          .source = "Huang et al. 2020, arXiv 2009.13658 methods 1 to 4",
          .terms = terms,
          .parameters = parameters,
          .cost = cost,
          .extrapolates = "yes, far distances share the clipped row",
          .keys = {"max_relative_position = max_position_embeddings - 1"}};
}

}  // namespace

EncodingEntry huang_m1() {
  return {.info = huang_info("huang-m1", "scores times a trained number by absolute distance", "s a_|r| q_m.k_n", "G",
                             "L * H * (max_relative_position + 1)", "T * S * H multiplications"),
          .make = construct<Gates, Gate::kNumberByAbsoluteDistance>};
}

EncodingEntry huang_m2() {
  return {.info = huang_info("huang-m2", "scores times a trained number by distance", "s a_r q_m.k_n", "G",
                             "L * H * (2 max_relative_position + 1)", "T * S * H multiplications"),
          .make = construct<Gates, Gate::kNumber>};
}

EncodingEntry huang_m3() {
  return {.info = huang_info("huang-m3", "queries times a trained vector by distance", "s (q_m * a_r).k_n", "G",
                             "L * H * (2 max_relative_position + 1) * D", "T * S * H * D multiplications"),
          .make = construct<Gates, Gate::kVector>};
}

EncodingEntry huang_m4() {
  return {.info = huang_info("huang-m4", "a trained vector by distance, multiplied with query and key",
                             "s (q_m.k_n + q_m.a_r + k_n.a_r)", "K, Q", "L * (2 max_relative_position + 1) * D",
                             "(T + S) * N * H * D multiply-adds, N = min(T + S, 2 max_relative_position + 1)"),
          .make = construct<KeyQueryTable>};
}

}  // namespace rf::nn::posenc
