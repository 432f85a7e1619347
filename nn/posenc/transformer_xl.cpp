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
//
// dai-literal is Eq. 7 before u and v replace the query's position: Eq. 6 with relative keys only in its second and
// fourth term, as notes on the paper print it under "Method 1",
//
//   score(m,n) = s [ x_m W_q^T W_k x_n + x_m W_q^T W_r R[m-n] + p_m W_q^T W_k x_n + p_m W_q^T W_r R[m-n] ]
//              = s (W_q (x_m + p_m)).(k_n + W_r R[m-n])
//
// p_m is the sinusoid at the position, in the layout of R. It goes through W_q without its bias, which q already
// contains. So scores depend on the absolute position of the query. Attention takes the second term as a table. The
// last two terms depend on keys, so they are passed as one number per pair: T x S for each head in memory.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/linear.h>

#include "layer_parameters.h"
#include "rf/io/error.h"
#include "rotary_rows.h"

namespace rf::nn::posenc {

namespace {

// R by distance, times the W_r of each layer.
class ProjectedSinusoids : public Encoding {
 protected:
  explicit ProjectedSinusoids(const EncodingShape& shape, io::StrictObject& options)
      : name_(options.path()), shape_(shape) {
    if (shape.hidden_size % 2 != 0) {
      fail("position_encoding", "hidden_size must be even for {} (sines and cosines), got {}", name_,
           shape.hidden_size);
    }
  }

  void make_weights() {
    weights_ = layer_parameters(*this, shape_.layers, "r_weight", [&] {
      return drawn({shape_.heads * shape_.head_dim, shape_.hidden_size}, shape_);
    });
  }

  at::Tensor sinusoids(const at::Tensor& positions) const {
    const at::ScalarType type = weights_.front()->scalar_type();
    return sinusoid(positions, shape_.hidden_size, SinusoidLayout::kHalf, type).to(type);
  }

  // [1, distances, C].
  DistanceTable sinusoids_by_distance(const Positions& positions, int64_t farthest = INT64_MAX) const {
    const auto [lo, hi] = distance_range(positions, farthest);
    return {sinusoids(at::arange(lo, hi + 1, at::kLong)).unsqueeze(0), lo, hi};
  }

  const at::Tensor& query_weight(const Projections& projections, const char* rule) const {
    if (!projections.query_weight.defined()) fail(name_, "{}, got none", rule);
    return projections.query_weight;
  }

  std::string name_;  // for messages
  EncodingShape shape_;
  std::vector<Parameter> weights_;  // W_r [H*D, C] for each layer
};

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

class DaiLiteral : public ProjectedSinusoids {
 public:
  DaiLiteral(io::StrictObject& options, const EncodingShape& shape) : ProjectedSinusoids(shape, options) {
    make_weights();
  }

  bool reads_vectors() const override { return true; }
  void check_length(int64_t tokens) const override { distance_range(ends_of_sequence(tokens)); }
  int64_t last_new_length() const override { return INT64_MAX; }

  Shared compute_shared(const Positions& positions, at::ScalarType) override {
    require_one_axis(name_, positions);
    return {.table = sinusoids_by_distance(positions)};
  }

  Terms compute_terms(int64_t layer, const Shared& shared, const Projections& projections) override {
    const NoAutocast no_autocast;
    const at::Tensor& weight = query_weight(projections, "the query projection of the layer must be given");
    const ReadVectors x = read_vectors(name_, projections, shape_.head_dim);
    const at::ScalarType type = x.k_BSHD.scalar_type();
    const DistanceTable keys{
        .rows = projected_rows(shared.table.rows.squeeze(0).to(type), weights_.at(layer)->to(type), {}, shape_),
        .lo = shared.table.lo,
        .hi = shared.table.hi};
    const at::Tensor &query_BT = shared.positions.query.ids, &key_BS = shared.positions.key.ids;
    const at::Tensor at_BTHD =
        at::linear(sinusoids(query_BT).to(type), weight.to(type)).unflatten(-1, {shape_.heads, shape_.head_dim});
    const at::Tensor content_BHTS = at::einsum("bthd,bshd->bhts", {at_BTHD, x.k_BSHD});
    const at::Tensor by_row_BHTR = at::einsum("bthd,hrd->bhtr", {at_BTHD, keys.rows});
    const at::Tensor row_BTS = query_BT.unsqueeze(-1) - key_BS.unsqueeze(-2) - keys.lo;
    const at::Tensor position_BHTS = by_row_BHTR.expand({row_BTS.size(0), -1, -1, -1})
                                         .gather(-1, row_BTS.unsqueeze(1).expand({-1, shape_.heads, -1, -1}));
    return {.key_table = keys, .pair_bias = (content_BHTS + position_BHTS) * x.scale, .scale = x.scale};
  }
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

EncodingEntry dai_literal() {
  return {
      .info = {.name = "dai-literal",
               .summary = "relative keys with the query's absolute position kept: what transformer-xl replaces by "
                          "trained vectors",
               .equation = "score = s (q + W_q p_m).(k + W_r R[r])",
               .source = "arXiv 2104.09864 Eq. 6-7, between the two; Dai et al. 2019, arXiv 1901.02860",
               .terms = "K, P, s",
               .parameters = "L * C * H * D",
               .cost = "T * (T + 3 S) * H * D multiply-adds, (T + S) * C * H * D for the table, and T * S * H numbers "
                       "in memory",
               .extrapolates = "sinusoids exist everywhere; beyond the trained positions nothing was learned",
               .invariance = EncodingInfo::Invariance::kNone},
      .make = construct<DaiLiteral>};
}

}  // namespace rf::nn::posenc
