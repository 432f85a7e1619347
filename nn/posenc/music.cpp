// Relative vectors for causal attention (Music Transformer, Huang et al. 2018, arXiv 1809.04281; spec R-REL-07):
// softmax((Q K^T + skew(Q E_r^T)) / sqrt(D)) V, E_r [H, L, D] for each layer. Row j - i + L - 1 of E_r is for key j and
// query i, so the last row is distance 0. The paper clips distances; here a distance of L or more is an error. The skew
// is only the paper's way to look up rows.
#include <vector>

#include "layer_parameters.h"
#include "rf/io/error.h"
#include "rf/model/computed_encoding.h"

namespace rf::nn::posenc {

namespace {

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

}  // namespace

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

}  // namespace rf::nn::posenc
