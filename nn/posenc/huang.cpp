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
// initializer_range). Parameter row c + clip is for j - i = c (M1: row c for |j - i| = c); larger distances use the
// last row. The default clips nothing within max_position_embeddings.
#include <ATen/ops/arange.h>

#include <vector>

#include "layer_parameters.h"
#include "rf/nn/encoding.h"

namespace rf::nn::posenc {

namespace {

class Gates : public Encoding {
 public:
  enum class By { kAbsoluteDistance, kDistance };

  // width: 1 for a number, head_dim for a vector.
  Gates(By by, int64_t width, int64_t clip, const EncodingShape& shape)
      : by_(by), clip_(clip), rows_HCD_(layer_parameters(*this, shape.layers, "gate", [&] {
          const int64_t rows = by == By::kDistance ? 2 * clip + 1 : clip + 1;
          return drawn({shape.heads, rows, width}, shape, /*mean=*/1);
        })) {}

  Terms compute_terms(int64_t layer, const Shared&, const Projections&) override {
    const at::Tensor& rows_HCD = rows_HCD_.at(layer);
    if (by_ == By::kDistance) return {.gate = {rows_HCD.flip(1), -clip_, clip_}};
    const at::Tensor distance_C = at::arange(-clip_, clip_ + 1, at::kLong).abs();
    return {.gate = {rows_HCD.index_select(1, distance_C), -clip_, clip_}};
  }
  int64_t last_new_length() const override { return 1; }

 private:
  By by_;
  int64_t clip_;
  std::vector<Parameter> rows_HCD_;
};

class KeyQueryTable : public Encoding {
 public:
  KeyQueryTable(int64_t clip, const EncodingShape& shape)
      : clip_(clip), rows_CD_(layer_parameters(*this, shape.layers, "key_query", [&] {
          return drawn({2 * clip + 1, shape.head_dim}, shape);
        })) {}

  Terms compute_terms(int64_t layer, const Shared&, const Projections&) override {
    const DistanceTable table = {rows_CD_.at(layer)->flip(0).unsqueeze(0), -clip_, clip_};
    return {.key_table = table, .query_table = table};
  }
  int64_t last_new_length() const override { return 1; }

 private:
  int64_t clip_;
  std::vector<Parameter> rows_CD_;
};

int64_t clip_of(io::StrictObject& options, const EncodingShape& shape) {
  return options.integer("max_relative_position", shape.max_position_embeddings - 1, 0, (int64_t{1} << 23) - 1);
}

// The part that the four methods share.
EncodingInfo info_of(const char* name, const char* summary, const char* equation, const char* terms,
                     const char* parameters, const char* cost) {
  return {.name = name,
          .summary = summary,
          .equation = equation,
          .source = "Huang et al. 2020, arXiv 2009.13658 methods 1 to 4",
          .terms = terms,
          .parameters = parameters,
          .cost = cost,
          .extrapolates = "yes, far distances share the clipped row",
          .file = "nn/posenc/huang.cpp",
          .test = "tests/nn/test_huang.py",
          .keys = {"max_relative_position = max_position_embeddings - 1"}};
}

}  // namespace

EncodingEntry huang_m1() {
  return {.info = info_of("huang-m1", "scores times a trained number by absolute distance", "s a_|r| q_m.k_n", "G",
                          "L * H * (max_relative_position + 1)", "T * S * H multiplications"),
          .make = [](io::StrictObject& options, const EncodingShape& shape) -> std::shared_ptr<Encoding> {
            return std::make_shared<Gates>(Gates::By::kAbsoluteDistance, 1, clip_of(options, shape), shape);
          }};
}

EncodingEntry huang_m2() {
  return {.info = info_of("huang-m2", "scores times a trained number by distance", "s a_r q_m.k_n", "G",
                          "L * H * (2 max_relative_position + 1)", "T * S * H multiplications"),
          .make = [](io::StrictObject& options, const EncodingShape& shape) -> std::shared_ptr<Encoding> {
            return std::make_shared<Gates>(Gates::By::kDistance, 1, clip_of(options, shape), shape);
          }};
}

EncodingEntry huang_m3() {
  return {.info = info_of("huang-m3", "queries times a trained vector by distance", "s (q_m * a_r).k_n", "G",
                          "L * H * (2 max_relative_position + 1) * D", "T * S * H * D multiplications"),
          .make = [](io::StrictObject& options, const EncodingShape& shape) -> std::shared_ptr<Encoding> {
            return std::make_shared<Gates>(Gates::By::kDistance, shape.head_dim, clip_of(options, shape), shape);
          }};
}

EncodingEntry huang_m4() {
  return {.info = info_of("huang-m4", "a trained vector by distance, multiplied with query and key",
                          "s (q_m.k_n + q_m.a_r + k_n.a_r)", "K, Q", "L * (2 max_relative_position + 1) * D",
                          "(T + S) * N * H * D multiply-adds, N = min(T + S, 2 max_relative_position + 1)"),
          .make = [](io::StrictObject& options, const EncodingShape& shape) -> std::shared_ptr<Encoding> {
            return std::make_shared<KeyQueryTable>(clip_of(options, shape), shape);
          }};
}

}  // namespace rf::nn::posenc
