// Vectors and factors by distance, in queries, keys and values. A table's rows are for key minus query in the papers,
// and for query minus key in attention's terms, so they are reversed.
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <vector>

#include "layer_parameters.h"
#include "rf/io/error.h"
#include "rf/model/computed_encoding.h"
#include "rf/model/rotary_rows.h"

namespace rf::nn::posenc {

namespace {

constexpr int64_t kMaxClip = (int64_t{1} << 23) - 1;
constexpr const char* kClipped = "yes, far distances share the clipped row";

// Row c + clip of each head is for key minus query = c.
DistanceTable reversed(const at::Tensor& rows_HCD, int64_t clip) { return {rows_HCD.flip(1), -clip, clip}; }

// Relative vectors added to keys and values after the projection (Shaw et al. 2018, arXiv 1803.02155 Eq. 3-4; spec
// R-REL-01): row c + k is a_c, c = clip(j - i, -k, k). Each layer has its own vectors, shared by its heads.
class Shaw : public LengthFreeEncoding {
 public:
  Shaw(io::StrictObject& options, const EncodingShape& shape)
      : clip_(options.integer("max_relative_position", 16, 0, kMaxClip)) {
    const auto draw = [&] { return drawn({2 * clip_ + 1, shape.head_dim}, shape); };
    keys_CD_ = layer_parameters(*this, shape.layers, "key", draw);
    if (options.boolean("values", true)) values_CD_ = layer_parameters(*this, shape.layers, "value", draw);
  }

  Terms compute_terms(int64_t layer, const Shared&, const Projections&) override {
    return {.key_table = reversed(keys_CD_.at(layer)->unsqueeze(0), clip_),
            .value_table = values_CD_.empty() ? DistanceTable{} : reversed(values_CD_.at(layer)->unsqueeze(0), clip_)};
  }

 private:
  int64_t clip_;
  std::vector<Parameter> keys_CD_, values_CD_;
};

// arXiv 2104.09864 Eq. 5 as printed: k = W_k (x_n + p~k_r), v = W_v (x_n + p~v_r), r = clip(m - n, r_min, r_max). The
// vectors pass through the layer's projections without their biases. Row r - r_min is for distance r, query minus key.
// All layers share one pair of tables.
class ShawLiteral : public LengthFreeEncoding {
 public:
  ShawLiteral(io::StrictObject& options, const EncodingShape& shape)
      : lo_(options.integer("r_min", -16, -kMaxClip, kMaxClip)),
        hi_(options.integer("r_max", 16, -kMaxClip, kMaxClip)),
        shape_(shape) {
    if (lo_ > hi_) fail("shaw-literal", "r_min must not exceed r_max, got {} and {}", lo_, hi_);
    key_rows_PC_ = register_parameter("key", drawn({hi_ - lo_ + 1, shape.hidden_size}, shape));
    value_rows_PC_ = register_parameter("value", drawn({hi_ - lo_ + 1, shape.hidden_size}, shape));
  }

  Terms compute_terms(int64_t, const Shared&, const Projections& projections) override {
    return {.key_table = projected(key_rows_PC_, projections.key_weight, "key"),
            .value_table = projected(value_rows_PC_, projections.value_weight, "value")};
  }

 private:
  DistanceTable projected(const at::Tensor& rows_PC, const at::Tensor& weight, const char* side) const {
    if (!weight.defined()) fail("shaw-literal", "the {} projection of the layer must be given, got none", side);
    return {.rows = projected_rows(rows_PC, weight, {}, shape_), .lo = lo_, .hi = hi_};
  }

  int64_t lo_, hi_;
  EncodingShape shape_;
  Parameter key_rows_PC_, value_rows_PC_;
};

// Fixed sinusoids of the clipped distance, added to keys and values after the projection (NEZHA, Wei et al. 2019, arXiv
// 1909.00204; spec R-REL-09). T[c] is the interleaved sinusoid of the index c = clip(j - i, -k, k) + k, from 0 to 2k,
// as in the authors' code; the paper's formula takes sines of j - i instead. Keys, values, heads and layers share one
// table. No parameters.
class Nezha : public LengthFreeEncoding {
 public:
  Nezha(io::StrictObject& options, const EncodingShape& shape)
      : clip_(read_nezha_clip(options)), head_dim_(shape.head_dim) {}

  Shared compute_shared(const Positions&, at::ScalarType dtype) override {
    const at::Tensor rows_1CD = at::empty({1, 2 * clip_ + 1, head_dim_}, ops::row_dtype(dtype));
    at::get_num_threads();  // core uses as many
    if (dtype == at::kDouble) {
      nezha_rows(clip_, head_dim_, rows_1CD.mutable_data_ptr<double>());
    } else {
      nezha_rows(clip_, head_dim_, rows_1CD.mutable_data_ptr<float>());
    }
    const DistanceTable table = {rows_1CD, -clip_, clip_};
    return {.terms = {.key_table = table, .value_table = table}};
  }

 private:
  int64_t clip_, head_dim_;
};

// Relative vectors for causal attention (Music Transformer, Huang et al. 2018, arXiv 1809.04281; spec R-REL-07):
// softmax((Q K^T + skew(Q E_r^T)) / sqrt(D)) V, E_r [H, L, D] for each layer. Row j - i + L - 1 of E_r is for key j and
// query i, so the last row is distance 0. The paper clips distances; here a distance of L or more is an error. The skew
// is only the paper's way to look up rows.
class Music : public LengthFreeEncoding {
 public:
  Music(io::StrictObject& options, const EncodingShape& shape)
      : distances_(read_table_positions(options, shape.max_position_embeddings)),
        rows_HCD_(layer_parameters(*this, shape.layers, "key", [&] {
          return drawn({shape.heads, distances_, shape.head_dim}, shape);
        })) {}

  Shared compute_shared(const Positions& positions, at::ScalarType) override {
    const TokenPositions& query = positions.query;
    if (query.ids.numel() > 0) check_farthest((query.ids - query.first).max().item<int64_t>());
    return {};
  }

  void check_length(int64_t tokens) const override { check_farthest(tokens - 1); }

  Terms compute_terms(int64_t layer, const Shared&, const Projections&) override {
    return {.key_table = {.rows = rows_HCD_.at(layer)->flip(1), .lo = 0, .hi = distances_ - 1}};
  }

 private:
  void check_farthest(int64_t distance) const {
    if (distance < distances_) return;
    fail("music", "distances must be below the {} rows of the table (max_position_embeddings), got {}", distances_,
         distance);
  }

  int64_t distances_;
  std::vector<Parameter> rows_HCD_;
};

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
    const at::Tensor distance_C = at::arange(-clip_, clip_ + 1, at::kLong).abs();
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
          .extrapolates = kClipped,
          .keys = {"max_relative_position = max_position_embeddings - 1"}};
}

}  // namespace

EncodingEntry shaw() {
  return {.info = {.name = "shaw",
                   .summary = "a trained vector for each clipped distance, added to keys and values",
                   .equation = "s q_m.(k_n + K[r]), sum_n a_mn (v_n + V[r])",
                   .source = "Shaw et al. 2018, arXiv 1803.02155 Eq. 3-4",
                   .terms = "K, V",
                   .parameters = "L * 2 * (2 max_relative_position + 1) * D",
                   .cost = "2 * T * N * H * D multiply-adds, N = min(T + S, 2 max_relative_position + 1)",
                   .extrapolates = kClipped,
                   .keys = {"max_relative_position = 16", "values = true"}},
          .make = construct<Shaw>};
}

EncodingEntry shaw_literal() {
  return {.info = {.name = "shaw-literal",
                   .summary = "a trained vector for each clipped distance that goes through W_k and W_v",
                   .equation = "K[r] = W_k p~k_r, V[r] = W_v p~v_r",
                   .source = "arXiv 2104.09864 Eq. 5",
                   .terms = "K, V",
                   .parameters = "2 * (r_max - r_min + 1) * C",
                   .cost = "2 * T * N * H * D multiply-adds, N = min(T + S, r_max - r_min + 1), and both "
                           "tables times W",
                   .extrapolates = kClipped,
                   .keys = {"r_min = -16", "r_max = 16"}},
          .make = construct<ShawLiteral>};
}

EncodingEntry nezha() {
  return {.info = {.name = "nezha",
                   .summary = "a fixed sinusoid for each clipped distance, added to keys and values",
                   .equation = "s q_m.(k_n + T[r]), sum_n a_mn (v_n + T[r])",
                   .source = "Wei et al. 2019, arXiv 1909.00204, and its code",
                   .terms = "K, V",
                   .cost = "2 * T * N * H * D multiply-adds, N = min(T + S, 2 max_relative_position + 1)",
                   .extrapolates = kClipped,
                   .keys = {"max_relative_position = 64"}},
          .make = construct<Nezha>};
}

EncodingEntry music() {
  return {.info = {.name = "music",
                   .summary = "a trained vector for each head and distance to an earlier key",
                   .equation = "s (q_m.k_n + q_m.E[r])",
                   .source = "Huang et al. 2018, arXiv 1809.04281 Eq. 3",
                   .terms = "K",
                   .parameters = "L * H * max_position_embeddings * D",
                   .cost = "T * S * H * D multiply-adds",
                   .extrapolates = "no, error beyond the table",
                   .keys = {"max_position_embeddings = that of the model"},
                   .needs = EncodingInfo::Needs::kCausal},
          .make = construct<Music>};
}

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
