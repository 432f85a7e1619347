// Complex word embeddings (Wang et al. 2020, arXiv 1912.12333 section 2): dimension i of word j at position p is
//
//   r_ji e^{i (omega_ji p + theta_ji)}
//
// with trained amplitudes r, frequencies omega and initial phases theta for each word and dimension. The E numbers of a
// word's embedding are read as E/2 complex numbers, which are r e^{i theta}: elements (2i, 2i+1) are real and imaginary
// part. So omega_ji p rotates the pairs of a word's embedding, and the model's embedding table holds r and theta. This
// encoding holds the frequencies: one for each word and dimension, for each dimension (shared by words in the paper),
// or for each word (shared by dimensions). Frequencies per dimension start as in sinusoids, 10000^(-2i/E), as in the
// authors' code; frequencies per word are drawn from [0, 1).
//
// Not implemented: complex layers, whose scores are |q.k|. The encoder takes real and imaginary parts as its input.
// Positions count from 0. Token types and other inputs are added after the rotation. A language model head that is tied
// to the table uses words at position 0.
#include <ATen/TensorOperators.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rand.h>

#include "attention_state.h"
#include "layer_parameters.h"
#include "rf/io/error.h"
#include "rf/nn/devices.h"

namespace rf::nn::posenc {

namespace {

enum class FrequencySharing { kNone, kWords, kDimensions };

// [V, E/2], [E/2] or [V, 1].
at::Tensor frequency_start(FrequencySharing sharing, int64_t words, int64_t pairs) {
  const bool by_dimension = sharing != FrequencySharing::kDimensions;
  if (EmptyParameters::wanted()) {
    if (sharing == FrequencySharing::kWords) return at::empty({pairs}, at::kFloat);
    return at::empty({words, by_dimension ? pairs : 1}, at::kFloat);
  }
  if (!by_dimension) return at::rand({words, 1}, at::kFloat);
  const at::Tensor exponent_P = at::arange(pairs, at::kDouble) / -static_cast<double>(pairs);
  const at::Tensor start_P = at::pow(10000.0, exponent_P).to(at::kFloat);
  return sharing == FrequencySharing::kWords ? start_P : start_P.repeat({words, 1});
}

class ComplexWords : public LengthFreeEncoding {
 public:
  ComplexWords(io::StrictObject& options, const EncodingShape& shape)
      : vocab_size_(shape.vocab_size), width_(shape.input_size) {
    if (width_ % 2 != 0) fail("position_encoding", "embedding_size must be even for complex, got {}", width_);
    if (vocab_size_ < 1) fail("position_encoding", "vocab_size must be given for complex, got {}", vocab_size_);
    const auto sharing = options.choice("share", FrequencySharing::kNone,
                                        {{"none", FrequencySharing::kNone},
                                         {"words", FrequencySharing::kWords},
                                         {"dimensions", FrequencySharing::kDimensions}});
    freqs_ = register_parameter(sharing == FrequencySharing::kWords ? "freqs" : "word_freqs",
                                frequency_start(sharing, vocab_size_, width_ / 2));
  }

  at::Tensor words(const at::Tensor& words_BTE, const at::Tensor& ids_BT,
                   const TokenPositions& positions) const override {
    check_words(words_BTE, ids_BT);
    const NoAutocast no_autocast;
    const at::Tensor freqs_BTP = freqs_->dim() == 1 ? freqs_->view({1, 1, -1}) : at::embedding(freqs_, ids_BT);
    const at::Tensor angle_BTP =
        (on_device(positions.ids, freqs_->device()).to(at::kDouble).unsqueeze(-1) * freqs_BTP.to(at::kDouble))
            .expand({-1, -1, width_ / 2});
    const at::ScalarType type = ops::row_dtype(words_BTE.scalar_type());
    const Rotation rows{.cos = angle_BTP.cos().to(type), .sin = angle_BTP.sin().to(type)};
    return rotated(words_BTE.unsqueeze(2), rows, "pairs").squeeze(2);
  }

  bool changes_words() const override { return true; }
  const char* beyond_terms() const override { return "word embeddings that turn with the position"; }
  bool acts_in_layers() const override { return false; }

 private:
  void check_words(const at::Tensor& words_BTE, const at::Tensor& ids_BT) const {
    if (words_BTE.size(2) != width_) {
      fail("complex", "words must have the {} elements of an embedding, got {}", width_, words_BTE.size(2));
    }
    if (ids_BT.numel() == 0 || ids_BT.is_cuda()) return;  // a GPU would have to be waited for
    const auto [low, high] = at::aminmax(ids_BT);
    const int64_t first = low.item<int64_t>(), last = high.item<int64_t>();
    if (first >= 0 && last < vocab_size_) return;
    fail("complex", "token ids must be in 0..{}, got {}", vocab_size_ - 1, first < 0 ? first : last);
  }

  int64_t vocab_size_, width_;
  Parameter freqs_;  // [V, E/2], [E/2] or [V, 1]
};

}  // namespace

EncodingEntry complex_words() {
  return {.info = {.name = "complex",
                   .summary = "word embeddings are complex numbers that rotate with the position, at trained "
                              "frequencies for each word",
                   .equation = "x_p = z_j e^{i omega_j p} of word j, z_j = r_j e^{i theta_j}",
                   .source = "Wang et al. 2020, arXiv 1912.12333 section 2",
                   .parameters = "V * E/2; E/2 or V with share",
                   .cost = "0; T * E once",
                   .extrapolates = "defined at every position; worse beyond the trained ones (docs/report.md)",
                   .keys = {"share = none (or words, dimensions)"},
                   .invariance = EncodingInfo::Invariance::kNone,
                   .pairwise = EncodingInfo::Pairwise::kNo},
          .make = construct<ComplexWords>};
}

}  // namespace rf::nn::posenc
