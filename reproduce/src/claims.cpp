// The claim register (register.h). Sources: "paper" is arXiv 2104.09864; the others are named.
#include "register.h"

namespace rf::reproduce {

const std::vector<Claim>& claims() {
  static const std::vector<Claim> kClaims = {
      {"C-01", "Self-attention alone does not see the order of its tokens", "paper section 1", "testable", ""},
      {"C-02", "RoPE encodes the absolute position of a token, and scores depend on relative positions alone",
       "paper abstract, Eq. 16", "testable", ""},
      {"C-03", "RoPE can be computed for sequences of any length", "paper abstract; kexue.fm/archives/8265", "testable",
       "Computing is one thing; how well a model reads beyond its training length is C-23."},
      {"C-04", "The dependency between two tokens decays as their distance grows", "paper section 3.3, 3.4.3",
       "qualified",
       "Only an upper bound of the score decays, not steadily, and it levels off at some hundred tokens; scores of "
       "unrelated vectors keep their variance at every distance (score-by-distance). What decays are the scores of "
       "trained models, which "
       "learn to prefer near tokens: trained-scores asks for that."},
      {"C-05", "RoPE works with linear attention, where additive relative encodings do not",
       "paper section 3.3, Eq. 19", "testable",
       "As their authors compute them, it was the only one of the encodings compared there; what their scores would "
       "allow is another question, which pairwise answers."},
      {"C-06", "The rotation is orthogonal, so norms stay as they are", "paper section 3.2.2", "testable", ""},
      {"C-07", "The rotation's matrix is sparse, and need not be multiplied", "paper section 3.4.2, Eq. 34", "testable",
       ""},
      {"C-08",
       "With rotations in the numerator alone the denominator of linear attention stays positive; its weights are no "
       "probabilities, and useful still",
       "paper Eq. 19", "testable", ""},
      {"C-09", "Softmax attention takes time quadratic in the tokens, linear attention linear", "paper section 3.3",
       "experiment", ""},
      {"C-10", "Exact distances are of no use beyond some range, so they may be clipped",
       "Shaw et al. 2018, in paper section 2.3", "experiment", ""},
      {"C-11", "Words and absolute positions have little to do with each other", "Ke et al. 2020, in paper section 2.3",
       "experiment", ""},
      {"C-12", "Of the four terms of Eq. 6 the two in the middle are enough for relative positions",
       "He et al. 2020, in paper section 2.3", "experiment", ""},
      {"C-13", "Of four ways to put distances into scores, the one like Eq. 10 does best",
       "Huang et al. 2020, in paper section 2.3", "experiment", ""},
      {"C-14", "A sinusoid's rows are unique, bounded, the same at every length, and a shift acts on them linearly",
       "EleutherAI blog and Vaswani et al. 2017", "testable", ""},
      {"C-15", "What a sinusoid adds does not depend on the token; what RoPE changes does", "EleutherAI blog",
       "testable", ""},
      {"C-16", "RoFormer is better at classifying long texts", "paper abstract, Table 5", "experiment", ""},
      {"C-17", "RoFormer's masked-LM loss falls faster than BERT's", "paper Figure 3, left", "experiment", ""},
      {"C-18", "With RoPE, Performer's loss falls faster and lower", "paper Figure 3, right", "experiment",
       "At scale small the feature map is elu + 1, whose sums are exact, in place of the Performer's random features, "
       "and the model one of bytes."},
      {"C-19", "RoFormer translates English to German by 0.2 BLEU better than Transformer-base", "paper Table 1",
       "experiment",
       "0.2 is below the noise of small runs: the experiment asks whether RoPE is better at all (C-19), and whether "
       "it is not worse by 0.5 (X-10)."},
      {"C-20", "RoFormer is better than BERT on three of six GLUE tasks", "paper Table 2", "experiment",
       "The paper compares BERT on the test server with RoFormer on the validation set."},
      {"C-21", "Pretraining on longer texts gives a higher masked-LM accuracy", "paper Table 4", "experiment",
       "In the table, lengths are confounded with training time and batch. Judged is what can be told apart from them: "
       "whether one trained model has more of the same masked tokens right in longer rows. That models pretrained on "
       "longer rows are better is not tried."},
      {"C-22", "On short texts RoFormer equals WoBERT, at 1024 tokens it is better by 1.5 points",
       "paper section 4.5.4, Table 5", "experiment",
       "By the table's own numbers 1.69 points, or 1.50 over itself at 512."},
      {"C-23", "RoPE reads texts longer than those it was trained on", "kexue.fm/archives/8265", "experiment", ""},
      {"C-24", "RoFormer is part of Hugging Face's transformers", "paper section 1", "testable",
       "tests/oracles/test_roformer_parity.py: transformers opens what this program writes, computes the same numbers, "
       "and the other way round."},
      {"C-25", "Unlike the sinusoid, RoPE is derived without a Taylor expansion", "kexue.fm/archives/8265", "no claim",
       "A remark on a derivation; docs/theory.md has the derivation."},
      {"C-26", "Relative encodings that need a term for each pair of tokens do not fit into linear attention",
       "paper section 3.3; EleutherAI blog", "testable",
       "Some do: a bias that decays exponentially multiplies the state by a number, sinusoids of a difference are sums "
       "of "
       "products, a clipped table needs the last few keys. A table of all distances does not."},
      {"C-27", "RoPE multiplies where other encodings add", "paper section 3.2.2", "testable", ""},
      {"C-28", "Long contexts make sense as conjunctions", "a reader's note in one copy of the paper", "no claim",
       "Not the paper's words."},
      {"C-29", "Frequencies that may be trained stay where they were", "kexue.fm/archives/8265", "experiment", ""},
      {"C-30", "Word tokens make Chinese sequences shorter", "paper section 4.5.1; kexue.fm/archives/7758",
       "experiment", ""},
      {"C-31", "Without biases and with plain norms RoFormerV2 is 1.2 to 1.3 times as fast", "kexue.fm/archives/8998",
       "published only", "On a CPU a training step of ours is 1.03 to 1.10 times as fast: docs/benchmarks.md."},
      {"C-32", "There is no explanation for the faster convergence nor for the gain on long texts",
       "paper section 4.5.5", "no claim", "A limitation that the paper states."},
  };
  return kClaims;
}

}  // namespace rf::reproduce
