// ReRoPE and Leaky ReRoPE (Su 2023, kexue.fm/archives/9708, github.com/bojone/rerope; R-REL-15): rotary embedding whose
// distances grow more slowly, or not at all, beyond a window w, so that no distance exceeds the distances of training:
//
//   score(m,n) = s q . R_{f(m - n)} k     f(r) = r if |r| < w, else sign(r) (w + (|r| - w) / scaling_factor)
//
// Without scaling_factor every far token has distance w (ReRoPE). Two more rules:
//
//   self-extend   far pairs rotate by m // G + sign(r) (w - w // G) - n // G (Jin et al. 2024, arXiv 2401.01325)
//   dual-chunk    keys rotate by n % c; queries by m % c in their chunk of c tokens, by min(m % c + c, c + w - 1) for
//                 the keys of the chunk before it, and by c + w - 1 for earlier ones (An et al. 2024, arXiv 2402.17463)
//
// Frequencies and scalings are as in rope. Attention takes the rotations by r. If there are far pairs, it also takes
// the difference of the two scores as one number per pair: T x S for each head in memory. If all pairs are near, this
// is rope. Su also multiplies queries by a logarithm of the position, which is available as log-n.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/tensor.h>

#include <utility>
#include <vector>

#include "attention_state.h"
#include "known_values.h"
#include "layer_parameters.h"
#include "rf/io/error.h"
#include "rf/nn/devices.h"
#include "rotary_rows.h"

namespace rf::nn::posenc {

namespace {

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
    rule_ = options.choice(
        "rule", Rule::kRerope,
        {{"rerope", Rule::kRerope}, {"self-extend", Rule::kSelfExtend}, {"dual-chunk", Rule::kDualChunk}});
    if (rule_ == Rule::kSelfExtend) size_ = options.integer("group_size", 4, 1, int64_t{1} << 31);
    if (rule_ == Rule::kDualChunk) {
      size_ = options.integer("chunk_size", 3 * window_, window_, int64_t{1} << 33);
      if (!shape.causal) fail("position_encoding", "rule dual-chunk needs causal attention (is_decoder), got false");
      set_made_for(MadeFor::kCausal);
    }
    if (rule_ == Rule::kRerope && options.find("scaling_factor") != nullptr) {
      slowness_ = 1 / options.number("scaling_factor", 1, {1, 1e9});
    }
  }

  bool reads_vectors() const override { return true; }

  Terms compute_terms(int64_t, const Shared& shared, const Projections& projections) override {
    const NoAutocast no_autocast;
    const ReadVectors x = read_grouped_vectors("rerope", projections, head_dim_);
    Terms terms = shared.terms;
    terms.scale = x.scale;
    const at::Tensor query_BT = on_device(shared.positions.query.ids, x.q_BTHD.device()),
                     key_BS = on_device(shared.positions.key.ids, x.q_BTHD.device());
    at::Tensor far_BHTS;
    for (const Piece& piece : pieces(query_BT, key_BS)) {
      const auto [first, end] = range_of(piece.is_here_BTS.flatten(0, 1).any(0));
      if (first == end) continue;
      // One product of twice the width is the difference of the two scores. Heads of a group share the keys' rows.
      const at::Tensor k_BNHD = x.k_BSHD.slice(1, first, end);
      const at::Tensor q2_BTHD = at::cat({rotated(x.q_BTHD, rows_at(piece.query_BT, x), terms.layout) * x.scale,
                                          rotated(x.q_BTHD, terms.query, terms.layout) * -x.scale},
                                         -1);
      const Rotation near = {.cos = terms.key.cos.slice(1, first, end), .sin = terms.key.sin.slice(1, first, end)};
      const Rotation far = rows_at(piece.key_BS.slice(1, first, end), x);
      const at::Tensor k2_BNHD = at::cat({rotated(k_BNHD, far, terms.layout), rotated(k_BNHD, near, terms.layout)}, -1);
      const at::Tensor difference_BHTN =
          at::einsum("btkgd,bnkd->bkgtn", {q2_BTHD.unflatten(2, {x.k_BSHD.size(2), -1}), k2_BNHD}).flatten(1, 2);
      const at::Tensor numbers_BHTS = kept(difference_BHTN, piece.is_here_BTS, first);
      far_BHTS = far_BHTS.defined() ? far_BHTS + numbers_BHTS : numbers_BHTS;
    }
    terms.pair_bias = far_BHTS;
    return terms;
  }

 private:
  enum class Rule { kRerope, kSelfExtend, kDualChunk };

  // Pairs that do not rotate by their distance, and the positions that their queries and keys rotate by.
  struct Piece {
    at::Tensor is_here_BTS, query_BT, key_BS;
  };

  // The smallest range with every key that is true.
  static std::pair<int64_t, int64_t> range_of(const at::Tensor& is_true_S) {
    const at::Tensor keys_N = is_true_S.nonzero().squeeze(-1);
    if (keys_N.numel() == 0) return {0, 0};
    return {keys_N[0].item<int64_t>(), keys_N[-1].item<int64_t>() + 1};
  }

  // The numbers of keys `first`, .. for the pairs of a piece, 0 for others, [B, H, T, S]. Masks only the range of keys
  // that some queries lack, because each pass over T x S numbers takes as long as their product.
  static at::Tensor kept(const at::Tensor& x_BHTN, const at::Tensor& is_here_BTS, int64_t first) {
    const int64_t end = first + x_BHTN.size(3);
    const auto [from, to] = range_of(is_here_BTS.slice(2, first, end).flatten(0, 1).all(0).logical_not());
    const at::Tensor is_other_B1TN = is_here_BTS.slice(2, first + from, first + to).logical_not().unsqueeze(1);
    const auto zeros = [&](int64_t keys) {
      return x_BHTN.new_zeros({1}).expand({x_BHTN.size(0), x_BHTN.size(1), x_BHTN.size(2), keys});
    };
    return at::cat({zeros(first), x_BHTN.slice(3, 0, from), x_BHTN.slice(3, from, to).masked_fill(is_other_B1TN, 0),
                    x_BHTN.slice(3, to), zeros(is_here_BTS.size(2) - end)},
                   3);
  }

  std::vector<Piece> pieces(const at::Tensor& query_BT, const at::Tensor& key_BS) const {
    if (rule_ == Rule::kDualChunk) {
      const at::Tensor apart_BTS =
          query_BT.floor_divide(size_).unsqueeze(-1) - key_BS.floor_divide(size_).unsqueeze(-2);
      const at::Tensor in_next_BT = query_BT.remainder(size_) + size_, in_chunk_BS = key_BS.remainder(size_);
      const int64_t last = size_ + window_ - 1;
      return {{apart_BTS.eq(1), in_next_BT.clamp_max(last), in_chunk_BS},
              {apart_BTS.ge(2), at::full_like(in_next_BT, last), in_chunk_BS}};
    }
    std::vector<Piece> both;
    for (const int64_t sign : {1, -1}) {
      const at::Tensor edge_BT = query_BT * sign - window_;
      const at::Tensor is_far_BTS = edge_BT.unsqueeze(-1).ge((key_BS * sign).unsqueeze(-2));
      if (rule_ == Rule::kSelfExtend) {
        const int64_t shift = sign * (window_ - window_ / size_);
        both.push_back({is_far_BTS, query_BT.floor_divide(size_) + shift, key_BS.floor_divide(size_)});
      } else {
        const double offset = static_cast<double>(sign * window_) * (1 - slowness_);
        both.push_back({is_far_BTS, query_BT.to(at::kDouble) * slowness_ + offset, key_BS.to(at::kDouble) * slowness_});
      }
    }
    return both;
  }

  // [1 or B, T, R/2].
  Rotation rows_at(const at::Tensor& positions_BT, const ReadVectors& x) const {
    const at::Tensor theta_P = [&] {
      const OutsideTransforms constant;
      return on_device(at::tensor(rows_.initial_frequencies(), at::kDouble), positions_BT.device());
    }();
    const at::Tensor angle_BTP = positions_BT.to(at::kDouble).unsqueeze(-1) * theta_P;
    const double factor = rows_.settings().spec.attention_factor;
    const at::ScalarType dtype = x.q_BTHD.scalar_type();
    return {.cos = (angle_BTP.cos() * factor).to(dtype), .sin = (angle_BTP.sin() * factor).to(dtype)};
  }

  int64_t window_;
  Rule rule_ = Rule::kRerope;
  int64_t size_ = 1;     // of a group or chunk
  double slowness_ = 0;  // 1 / scaling_factor; 0: the distance stays w
  int64_t head_dim_;
};

}  // namespace

EncodingEntry rerope() {
  return {
      .info = {.name = "rerope",
               .summary = "rotary whose distances grow slowly or not at all beyond a window",
               .equation = "score = s q . R_f(m - n) k, f(r) = r where |r| < w, else sign(r) (w + (|r| - w) / "
                           "scaling_factor)",
               .source = "Su 2023, kexue.fm/archives/9708; arXiv 2401.01325; arXiv 2402.17463",
               .terms = "R^q, R^k, P, s",
               .cost = "2 * T * S * H * D multiply-adds, and T * S * H numbers in memory, where a pair is far; "
                       "bidirectional 3",
               .extrapolates = "yes, by design",
               .keys = rotary_keys("pairs", {"window = 512", "rule = rerope (or self-extend, dual-chunk)",
                                             "scaling_factor = none (ReRoPE), a number (Leaky ReRoPE)",
                                             "group_size = 4 (self-extend)", "chunk_size = 3 window (dual-chunk)"})},
      .make = construct<Rerope>};
}

}  // namespace rf::nn::posenc
