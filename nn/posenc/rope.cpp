// Rotary embedding, what changes its magnitudes, its distances and its frequencies.
#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "attention_state.h"
#include "layer_parameters.h"
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

// ReRoPE and Leaky ReRoPE (Su 2023, kexue.fm/archives/9708, github.com/bojone/rerope; R-REL-15): rotary embedding whose
// distances grow more slowly, or not at all, beyond a window w, so that no distance exceeds the distances of training:
//
//   score(m,n) = s q . R_{f(m - n)} k     f(r) = r if |r| < w, else sign(r) (w + (|r| - w) / scaling_factor)
//
// Without scaling_factor every far token has distance w (ReRoPE). Frequencies and scalings are as in rope. Attention
// takes the rotations by r. If there are far pairs, it also takes the difference of the two scores as one number per
// pair: T x S for each head in memory. If all pairs are near, this is rope. Su also multiplies queries by a logarithm
// of the position, which is available as log-n.
class Rerope : public RotaryEncoding {
 public:
  Rerope(io::StrictObject& options, const EncodingShape& shape)
      : RotaryEncoding(RotaryForm::kRope, options, shape), head_dim_(shape.head_dim) {
    const RotarySettings& settings = rows_.settings();
    if (settings.rotates_values || settings.trained != TrainedFrequencies::kNone || settings.log_n != LogN::kNone) {
      fail("position_encoding", "rotary_value, trainable and log_n must be absent for rerope, got one of them");
    }
    if (rows_.changes_with_length()) {
      fail("position_encoding", "frequencies of rerope must not depend on the length, got a rope_type where they do");
    }
    window_ = options.integer("window", 512, 1, int64_t{1} << 31);
    const bool is_leaky = options.find("scaling_factor") != nullptr;
    const double factor = options.number("scaling_factor", 1, {1, 1e9});
    slowness_ = is_leaky ? 1 / factor : 0;
  }

  bool reads_vectors() const override { return true; }

  Terms compute_terms(int64_t, const Shared& shared, const Projections& projections) override {
    const NoAutocast no_autocast;
    const ReadVectors x = read_vectors("rerope", projections, head_dim_);
    Terms terms = shared.terms;
    terms.scale = x.scale;
    const at::Tensor &query_BT = shared.positions.query.ids, &key_BS = shared.positions.key.ids;
    const at::Tensor distance_BTS = query_BT.unsqueeze(-1) - key_BS.unsqueeze(-2);
    at::Tensor near_BHTS, far_BHTS;
    for (const double sign : {1.0, -1.0}) {
      const at::Tensor is_far_BTS = (distance_BTS * static_cast<int64_t>(sign)).ge(window_);
      if (!is_far_BTS.any().item<bool>()) continue;
      if (!near_BHTS.defined()) near_BHTS = scores(x, terms.query, terms.key, terms.layout);
      const double offset = sign * static_cast<double>(window_) * (1 - slowness_);
      const at::Tensor difference_BHTS =
          (scores(x, slow_rows(query_BT, offset, x), slow_rows(key_BS, 0, x), terms.layout) - near_BHTS) * x.scale;
      const at::Tensor otherwise = far_BHTS.defined() ? far_BHTS : at::zeros_like(difference_BHTS);
      far_BHTS = at::where(is_far_BTS.unsqueeze(1), difference_BHTS, otherwise);
    }
    terms.pair_bias = far_BHTS;
    return terms;
  }

 private:
  static at::Tensor scores(const ReadVectors& x, const Rotation& query, const Rotation& key,
                           const std::string& layout) {
    return at::einsum("bthd,bshd->bhts", {rotated(x.q_BTHD, query, layout), rotated(x.k_BSHD, key, layout)});
  }

  // Rotation rows at positions slowness p + offset, [1 or B, T, R/2].
  Rotation slow_rows(const at::Tensor& ids_BT, double offset, const ReadVectors& x) const {
    const at::Tensor theta_P = at::tensor(rows_.initial_frequencies(), at::kDouble);
    const at::Tensor angle_BTP = (ids_BT.to(at::kDouble) * slowness_ + offset).unsqueeze(-1) * theta_P;
    const double factor = rows_.settings().spec.attention_factor;
    const at::ScalarType dtype = x.q_BTHD.scalar_type();
    return {.cos = (angle_BTP.cos() * factor).to(dtype), .sin = (angle_BTP.sin() * factor).to(dtype)};
  }

  int64_t window_;
  double slowness_;  // 1 / scaling_factor; 0: the distance stays w
  int64_t head_dim_;
};

// Fourier position embedding (Hua et al. 2024, arXiv 2412.17739; R-ROPE-12): a rotary embedding whose pairs combine
// several frequencies,
//
//   cos_hd(m) = sum_k A_hkd cos(m theta_k)     sin_hd(m) = sum_k B_hkd sin(m theta_k)
//
// over the K frequencies of rotary embedding that complete at least one turn within max_position_embeddings, or over
// the first num_inv_freq. Pairs beyond the first output_dim are not rotated: cos 1 and sin 0, the paper's zero
// frequency. (The authors' code fills both with 1, which mixes the halves of such a pair.) Layout "halves", as in that
// code.
//
// A and B start at 1 for k = d, or for k = d ceil(K / output_dim) if there are fewer outputs. Normal noise is added:
// Glorot's, as torch computes it for a tensor [H, K, d], times fope_init_factor. Both stay fixed, as in the authors'
// runs, or are trained.
class Fope : public LengthFreeEncoding {
 public:
  Fope(io::StrictObject& options, const EncodingShape& shape) : pairs_(shape.head_dim / 2) {
    if (shape.head_dim % 2 != 0) {
      fail("position_encoding", "head_dim must be even for fope, got {}", shape.head_dim);
    }
    const double base = options.number("rope_theta", 10000, {0, 1e100, io::NumberRange::Ends::kOpenLow});
    for (int64_t k = 0; k < pairs_; ++k) {
      frequencies_.push_back(std::pow(base, -static_cast<double>(k) / static_cast<double>(pairs_)));
    }
    // Those that complete at least one turn.
    const double least = 2 * std::numbers::pi / static_cast<double>(shape.max_position_embeddings);
    const auto kept = std::count_if(frequencies_.begin(), frequencies_.end(), [&](double t) { return t >= least; });
    if (options.find("num_inv_freq") == nullptr && kept == 0) {
      fail("position_encoding",
           "{} must be given where no frequency turns within max_position_embeddings, here {}, got none",
           options.path_of("num_inv_freq"), shape.max_position_embeddings);
    }
    const int64_t used = options.integer("num_inv_freq", kept, 1, pairs_);
    outputs_ = options.integer("output_dim", used, 1, pairs_);
    if (outputs_ > used) {
      fail("position_encoding", "{} must be at most the {} frequencies, got {}", options.path_of("output_dim"), used,
           outputs_);
    }
    frequencies_.resize(static_cast<size_t>(used));
    const double init_factor = options.number("fope_init_factor", 0.3, {0, 1e6});
    const int64_t heads = options.boolean("fope_sep_head", true) ? shape.heads : 1;
    const bool trainable = options.boolean("trainable", false);
    const auto make = [&](const char* name) {
      std::vector<Parameter> made =
          layer_parameters(*this, shape.layers, name, [&] { return coefficients_start(heads, init_factor); });
      for (const Parameter& each : made) {
        const at::Tensor& registered = each;
        registered.requires_grad_(trainable);
      }
      return made;
    };
    cos_coef_ = make("cos_coef");
    sin_coef_ = make("sin_coef");
  }

  Shared compute_shared(const Positions& positions, at::ScalarType) override {
    require_one_axis("fope", positions);
    return {};
  }

  Terms compute_terms(int64_t layer, const Shared& shared, const Projections&) override {
    return rotations_of(shared.positions, "halves",
                        [&](const TokenPositions& tokens) { return rows(layer, tokens.ids, shared.dtype); });
  }

 private:
  // Initial A or B of a layer, [H, K, d]; H is 1 where heads share them.
  at::Tensor coefficients_start(int64_t heads, double init_factor) const {
    const int64_t frequencies = std::ssize(frequencies_);
    const at::Tensor start_HKd = at::empty({heads, frequencies, outputs_}, at::kFloat);
    if (EmptyParameters::wanted()) return start_HKd;
    const auto fans = static_cast<double>((frequencies + heads) * outputs_);
    start_HKd.normal_(0, init_factor * std::sqrt(2 / fans));
    const int64_t step = (frequencies + outputs_ - 1) / outputs_;
    for (int64_t d = 0; d < outputs_ && d * step < frequencies; ++d) {
      start_HKd.select(1, d * step).select(1, d) += 1;
    }
    return start_HKd;
  }

  // [1 or B, T, H, R/2].
  Rotation rows(int64_t layer, const at::Tensor& ids_BT, at::ScalarType dtype) const {
    const at::Tensor angle_BTK = ids_BT.to(at::kDouble).unsqueeze(-1) * at::tensor(frequencies_, at::kDouble);
    const auto sums = [&](const at::Tensor& waves_BTK, const at::Tensor& coef_HKd, double still) {
      const at::Tensor turned = at::einsum("btk,hkd->bthd", {waves_BTK, coef_HKd.to(at::kDouble)});
      return at::constant_pad_nd(turned, {0, pairs_ - outputs_}, still).to(ops::row_dtype(dtype));
    };
    return {.cos = sums(angle_BTK.cos(), cos_coef_.at(layer), 1), .sin = sums(angle_BTK.sin(), sin_coef_.at(layer), 0)};
  }

  int64_t pairs_, outputs_;                     // R/2; d, rotated pairs
  std::vector<double> frequencies_;             // [K], theta_k = base^(-k / pairs)
  std::vector<Parameter> cos_coef_, sin_coef_;  // A and B, [H, K, d] each
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

EncodingEntry rerope() {
  return {.info = {.name = "rerope",
                   .summary = "rotary whose distances grow slowly or not at all beyond a window",
                   .equation = "score = s q . R_f(m - n) k, f(r) = r where |r| < w, else sign(r) (w + (|r| - w) / "
                               "scaling_factor)",
                   .source = "Su 2023, kexue.fm/archives/9708",
                   .terms = "R^q, R^k, P, s",
                   .cost = "2 * T * S * H * D multiply-adds, and T * S * H numbers in memory, where a pair is far; "
                           "bidirectional 3",
                   .extrapolates = "yes, by design",
                   .keys = rotary_keys("pairs",
                                       {"window = 512", "scaling_factor = none (ReRoPE), a number (Leaky ReRoPE)"})},
          .make = construct<Rerope>};
}

EncodingEntry fope() {
  return {.info = {.name = "fope",
                   .summary = "rotary whose pairs turn by sums of several frequencies, with weights for each head",
                   .equation = "score = s R_m q . R_n k, R_m with cos_d = sum_k A_kd cos(m theta_k) and "
                               "sin_d = sum_k B_kd sin(m theta_k) in the place of cos and sin",
                   .source = "Hua et al. 2024, arXiv 2412.17739",
                   .terms = "R^q, R^k",
                   .parameters = "L * 2 * H * K * d, K and d at most D/2; without the factor H where heads share",
                   .cost = "(T + S) H (D + 2 K d)",
                   .extrapolates = "made for it: pairs without a whole turn in training stand still",
                   .keys = {"rope_theta = 10000", "num_inv_freq = those that turn once in max_position_embeddings",
                            "output_dim = num_inv_freq", "fope_init_factor = 0.3", "fope_sep_head = true",
                            "trainable = false"},
                   .invariance = EncodingInfo::Invariance::kNone,
                   .pairwise = EncodingInfo::Pairwise::kNo},
          .make = construct<Fope>};
}

}  // namespace rf::nn::posenc
