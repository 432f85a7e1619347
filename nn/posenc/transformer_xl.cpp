// Transformer-XL (Dai et al. 2019, arXiv 1901.02860; arXiv 2104.09864 Eq. 7). Keys consist of word and distance
// vectors; two trained vectors per head replace the query's position:
//
//   score(m,n) = [ (q_m + u).k_n + (q_m + v).(W_r R[m - n]) ] / sqrt(D)
//   R[r]       = [ sin(r w_0), .., sin(r w_{C/2-1}), cos(r w_0), .., cos(r w_{C/2-1}) ],  w_t = 10000^(-2t/C)
//
// r is query minus key and may be negative; "clamp_len" > 0 clamps it to -clamp_len..clamp_len. Values carry no
// position. Each layer has W_r [H*D, C], without bias, and u and v; all layers share u and v if "untie_r" is false. All
// start as N(0, initializer_range^2).
//
// transformer-xl is the published method: u, v [H, D] replace the projected position. transformer-xl-literal is Eq. 7
// as printed: u, v [C] go through the layer's W_q (without its bias, which q already contains).
#include "projected_sinusoids.h"

namespace rf::nn::posenc {

namespace {

enum class Biases { kOfHeads, kThroughQuery };

class TransformerXl : public ProjectedSinusoids {
 public:
  TransformerXl(Biases biases, io::StrictObject& options, const EncodingShape& shape)
      : ProjectedSinusoids(shape, options), biases_(biases) {
    const std::vector<int64_t> sizes = biases == Biases::kOfHeads ? std::vector<int64_t>{shape.heads, shape.head_dim}
                                                                  : std::vector<int64_t>{shape.hidden_size};
    const bool is_tied = !options.boolean("untie_r", true);
    const auto make_biases = [&](const char* name) {
      const auto draw = [&] { return drawn(sizes, shape); };
      if (!is_tied) return layer_parameters(*this, shape.layers, name, draw);
      return std::vector<Parameter>(shape.layers, Parameter(register_parameter(name, draw())));
    };
    content_biases_ = make_biases("r_w_bias");
    position_biases_ = make_biases("r_r_bias");
    make_weights();
    const int64_t clamp = options.integer("clamp_len", -1, -1, int64_t{1} << 24);
    if (clamp > 0) clamp_ = clamp;
  }

  Shared compute_shared(const Positions& positions, at::ScalarType) override {
    return {.table = sinusoids_by_distance(positions, clamp_)};
  }

  void check_length(int64_t tokens) const override { distance_range(ends_of_sequence(tokens), clamp_); }
  int64_t last_new_length() const override { return clamp_ == INT64_MAX ? INT64_MAX : clamp_ + 1; }

  bool reads_projections() const override { return biases_ == Biases::kThroughQuery; }
  Terms compute_terms(int64_t layer, const Shared& shared, const Projections& projections) override {
    const DistanceTable& table = shared.table;
    const at::Tensor rows_HRD = projected_rows(table.rows.squeeze(0), weights_.at(layer), {}, shape_);
    Terms terms{.key_table = {rows_HRD, table.lo, table.hi}};
    terms.content_bias = bias(content_biases_.at(layer), projections);
    terms.position_bias = bias(position_biases_.at(layer), projections);
    return terms;
  }

 private:
  at::Tensor bias(const at::Tensor& parameter, const Projections& projections) const {
    if (biases_ == Biases::kOfHeads) return parameter;
    const at::Tensor& weight = query_weight(projections, "terms must be given the layer's projections");
    return weight.mv(parameter.to(weight.scalar_type())).unflatten(0, {shape_.heads, shape_.head_dim});
  }

  Biases biases_;
  int64_t clamp_ = INT64_MAX;
  // One for each layer; tied biases share one tensor. [H, D], or [C] if they go through the query projection.
  std::vector<Parameter> content_biases_, position_biases_;
};

}  // namespace

EncodingEntry transformer_xl() {
  return {.info = {.name = "transformer-xl",
                   .summary = "projected sinusoids of the distance as keys, and two trained query biases",
                   .equation = "score = s [(q + u).k + (q + v).(W_r R[r])]",
                   .source = "Dai et al. 2019, arXiv 1901.02860; arXiv 2104.09864 Eq. 7",
                   .terms = "u, w, K",
                   .parameters = "L * (C * H * D + 2 H * D)",
                   .cost = "T * (T + S) * H * D multiply-adds, and (T + S) * C * H * D for the table",
                   .extrapolates = "sinusoids exist at every distance; beyond the trained ones nothing was learned",
                   .keys = {"untie_r = true", "clamp_len = -1 (none)"}},
          .make = construct<TransformerXl, Biases::kOfHeads>};
}

EncodingEntry transformer_xl_literal() {
  EncodingInfo info = transformer_xl().info;
  info.name = "transformer-xl-literal";
  info.summary = "transformer-xl as Eq. 7 prints it, its biases multiplied by W_q";
  info.equation = "score = s [(q + W_q u).k + (q + W_q v).(W_r R[r])]";
  info.source = "arXiv 2104.09864 Eq. 7";
  info.parameters = "L * (C * H * D + 2 C)";
  return {.info = info, .make = construct<TransformerXl, Biases::kThroughQuery>};
}

}  // namespace rf::nn::posenc
