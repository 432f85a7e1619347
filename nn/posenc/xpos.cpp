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
#include "rotary_rows.h"

namespace rf::nn::posenc {

namespace {

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

}  // namespace rf::nn::posenc
