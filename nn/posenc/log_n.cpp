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
#include "rotary_rows.h"

namespace rf::nn::posenc {

EncodingEntry log_n() {
  return {.info = {.name = "log-n",
                   .summary = "scores multiplied by the logarithm of a query's position or of the length",
                   .equation = "max(1, ln(m + 1) / ln L) s q_m.k_n, or (ln n / ln L) s q_m.k_n",
                   .source = "Su 2021, kexue.fm/archives/8823; github.com/bojone/rerope",
                   .terms = "R^q, R^k",
                   .cost = "(T + S) H D",
                   .extrapolates = "yes, in combination with another encoding",
                   .keys = {"rule = position (or length)",
                            "original_max_position_embeddings = max_position_embeddings of the model"},
                   .invariance = EncodingInfo::Invariance::kNone,
                   .pairwise = EncodingInfo::Pairwise::kNo},
          .make = construct<RotaryEncoding, RotaryForm::kLogN>};
}

}  // namespace rf::nn::posenc
