// Rotary embedding, and what changes its magnitudes.
#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>

#include <cmath>

#include "rf/io/error.h"
#include "rf/nn/parameter.h"
#include "rotary_rows.h"

namespace rf::nn::posenc {

namespace {

// Rotary position embedding (arXiv 2104.09864 Eq. 14-16, 34; R-ROPE-01..11): queries and keys are rotated by their
// positions, so that a score depends only on the distance. rf/model/rope_spec.h describes frequencies, scalings and
// precision; scalings that depend on a length use the length of the token's sequence. With rotary_value, values are
// rotated too and not rotated back, so the output depends on absolute positions (R-ROPE-11). With trainable, the
// frequencies are a parameter that starts at the scaled frequencies; with trainable "log", the parameter is their
// logarithm (R-ROPE-12): theta = exp(lambda), so a step of lambda changes every frequency by the same ratio.
// Cross-attention does not rotate (R-ROPE-14): it uses no terms of this encoding. log_n multiplies the scores of a
// query by the factor of log-n. The training length is max_position_embeddings, or original_max_position_embeddings
// if the rope_type reads it.
class Rope : public RotaryEncoding {
 public:
  Rope(io::StrictObject& options, const EncodingShape& shape) : RotaryEncoding(RotaryForm::kRope, options, shape) {
    const TrainedFrequencies trained = rows_.settings().trained;
    if (trained == TrainedFrequencies::kNone) return;
    std::vector<double> start = rows_.initial_frequencies();
    if (trained == TrainedFrequencies::kLog) {
      for (double& each : start) {
        if (!(each > 0)) fail("rope", "frequencies must be above 0 where trainable is \"log\", got {}", each);
        each = std::log(each);
      }
    }
    trained_ = register_parameter(parameter_name(trained), at::tensor(start, at::kDouble).to(at::kFloat));
  }

  Shared compute_shared(const Positions& positions, at::ScalarType dtype) override {
    check_positions(positions, dtype);
    Terms terms = trained_->defined() ? trained_terms(positions, dtype) : rotary_terms(rows_, positions, dtype);
    if (rows_.settings().rotates_values) terms.value = terms.key;
    return {.terms = terms};
  }

 private:
  // Rounded as in the engine.
  at::Tensor frequencies() const {
    if (rows_.settings().trained == TrainedFrequencies::kRaw) return trained_;
    return trained_->to(at::kDouble).exp().to(trained_->scalar_type());
  }

  Terms trained_terms(const Positions& positions, at::ScalarType dtype) const {
    const at::Tensor freqs = frequencies();
    return rotations_of(positions, rf::name(rows_.settings().layout), [&](const TokenPositions& tokens) {
      return trained_rotation_rows(rows_.settings().spec, freqs, tokens.ids, dtype);
    });
  }

  Parameter trained_;  // [R/2], frequencies or their logarithms; undefined when they are fixed
};

// xPos (Sun et al. 2022, arXiv 2212.10554): rotary embedding whose queries grow and whose keys shrink with their
// positions, so that the contribution of pair i to a score also decays with the distance m - n, faster for higher
// frequencies:
//
//   q_m -> zeta_i^(+e_m / scale_base) R_m q_m     zeta_i = (2i/R + 0.4) / 1.4
//   k_n -> zeta_i^(-e_n / scale_base) R_n k_n     e_p = p - the middle of the token's sequence
//
// Scores depend only on e_m - e_n = m - n. Counting from the middle keeps both factors as close to 1 as possible, also
// in packed sequences and at late positions. The product of a query and a key overflows first: for the first query and
// the last key, it contains zeta_0 to the power of minus the length. That power times the largest possible product q.k
// must be finite in the dtype; a longer sequence is an Error. The paper's models are causal: the scores of keys after
// their query grow instead of decaying.
io::DType range_dtype(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble: return io::DType::kF64;
    case at::kHalf: return io::DType::kF16;
    case at::kBFloat16: return io::DType::kBF16;
    default: return io::DType::kF32;
  }
}

// Exponents count from the middle, which moves when the sequence grows.
class Xpos : public RotaryEncoding {
 public:
  using RotaryEncoding::RotaryEncoding;

  void check_positions(const Positions& positions, at::ScalarType dtype) const override {
    RotaryEncoding::check_positions(positions, dtype);
    for (const TokenPositions* tokens : {&positions.query, &positions.key}) {
      if (tokens->ids.numel() == 0) continue;
      rows_.check_span((tokens->end - tokens->first).max().item<int64_t>(), range_dtype(dtype));
    }
  }

  void check_length(int64_t tokens) const override { rows_.check_span(tokens, io::DType::kF32); }
};

}  // namespace

EncodingEntry rope() {
  return {.info = {.name = "rope",
                   .summary = "rotary: queries and keys are rotated by their positions, with nine published scalings",
                   .equation = "score = s R_m q . R_n k, R_m rotating pair i by m theta_i",
                   .source = "Su et al. 2021, arXiv 2104.09864 Eq. 14-16",
                   .terms = "R^q, R^k; R^v with rotary_value",
                   .parameters = "0; R/2 with trainable",
                   .cost = "(T + S) H D",
                   .extrapolates = "with a scaling in rope_parameters; without one, poorly beyond the training length",
                   .keys = rotary_keys("pairs", {"rotary_value = false", "trainable = false (or true, \"log\")",
                                                 "log_n = none (or position, length)"}),
                   .pairwise = EncodingInfo::Pairwise::kNo},
          .make = construct<Rope>};
}

EncodingEntry xpos() {
  return {.info = {.name = "xpos",
                   .summary = "rotary whose pairs also decay with the distance",
                   .equation = "score = s (zeta^(m/512) R_m q) . (zeta^(-n/512) R_n k), zeta_i = (2i/R + 0.4) / 1.4",
                   .source = "Sun et al. 2022, arXiv 2212.10554",
                   .terms = "R^q, R^k",
                   .cost = "(T + S) H D",
                   .extrapolates = "yes when causal, to 30,000 tokens (float32's range; 2,200 in float16)",
                   .keys = rotary_keys("pairs", {"scale_base = 512"}),
                   .pairwise = EncodingInfo::Pairwise::kNo},
          .make = construct<Xpos, RotaryForm::kXpos>};
}

// Scales scores with the logarithm of the number of keys, so that attention does not flatten over more keys than in
// training (R-ROPE-15; Su 2021, kexue.fm/archives/8823; Chiang and Cholak 2022, arXiv 2202.12172). With the training
// length L, the scores of query m are multiplied by
//
//   position   max(1, ln(p_m + 1) / ln L)   for causal models: p_m + 1 keys are seen (use_logn_attn of Qwen, and Su's
//                                           program of ReRoPE, which clip at 1)
//   length     ln n / ln L                  for a sequence whose positions span n, as in the post
//
// In the attention terms this is a rotation of the queries by 0 with that magnitude, so it combines with encodings that
// do not rotate; "rope" offers the same as its key log_n. In linear attention, whose denominator is not rotated, the
// factor multiplies the output of a query.
EncodingEntry log_n() {
  return {.info = {.name = "log-n",
                   .summary = "scores multiplied by the logarithm of a query's position or of the length",
                   .equation = "max(1, ln(m + 1) / ln L) s q_m.k_n, or (ln n / ln L) s q_m.k_n",
                   .source = "Su 2021, kexue.fm/archives/8823; github.com/bojone/rerope",
                   .terms = "R^q, R^k",
                   .cost = "(T + S) H D",
                   .extrapolates = "made for it, beside another encoding",
                   .keys = {"rule = position (or length)",
                            "original_max_position_embeddings = max_position_embeddings of the model"},
                   .invariance = EncodingInfo::Invariance::kNone,
                   .pairwise = EncodingInfo::Pairwise::kNo},
          .make = construct<RotaryEncoding, RotaryForm::kLogN>};
}

}  // namespace rf::nn::posenc
