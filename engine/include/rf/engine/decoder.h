// Sequences of a causal language model that grow token by token. The keys and values of their tokens are kept, or, with
// linear attention, sums over them, so that a step computes the new tokens alone.
//
// With softmax attention, the logits of a token have the same bits as those that Model::logits gives for the whole
// sequence, whatever other sequences are computed with it, in how many steps it came, and for any number of threads.
// Where a rotation changes as a sequence grows (dynamic, longrope and xpos), tokens are met with the present rotation
// in every layer, but the states that they had when they came stay, as in every cache, so that logits differ from those
// of the whole sequence.
//
// In a prefix language model (config.h) the tokens of the first append() to an empty sequence are its prefix, of type
// 0, and those after them of type 1.
//
// With linear attention, neither the memory of a sequence nor the time of a step depends on its length. Logits are
// those of the whole sequence to rounding: their bits depend on the steps in which the sequence came, but not on other
// sequences, nor on the number of threads. Sums lose no token, so truncate() leaves none or all. A rotation that
// changes within max_tokens is refused, since keys are in the sums as they were rotated.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "rf/engine/model.h"

namespace rf::engine {

// Throws as Model does. The model must outlive it; not for use by several threads at once.
class RF_ENGINE_API Decoder {
 public:
  // Room for sequences of at most max_tokens tokens: 2 layers hidden_size elements for each; with linear attention
  // layers (hidden_size + heads) features numbers of float64 for each sequence. Throws for a model that is no causal
  // language model, and for more tokens than it has positions.
  Decoder(const Model& model, int64_t sequences, int64_t max_tokens);
  ~Decoder();
  Decoder(Decoder&&) noexcept;
  Decoder& operator=(Decoder&&) noexcept;

  int64_t sequences() const;
  int64_t max_tokens() const;
  // The tokens of a sequence; none at first.
  std::span<const int32_t> ids(int64_t sequence) const;

  // Sequence sequences[i] grows by ids[offsets[i]] .. ids[offsets[i + 1] - 1], at least one token. sequences:
  // ascending; offsets: [sequences.size() + 1]. logits: [sequences.size(), vocab_size], of what follows the last token
  // of each. A call that throws changes nothing, except that linear attention has dropped the tokens of `sequences`
  // where memory ran out.
  void append(std::span<const int64_t> sequences, std::span<const int64_t> offsets, std::span<const int32_t> ids,
              float* logits);
  // Sequence `to` becomes what `from` is; keys and values of tokens that both begin with are not copied.
  void copy(int64_t from, int64_t to);
  // Drops all but the first tokens. With linear attention `tokens` must be 0 or the number that there are.
  void truncate(int64_t sequence, int64_t tokens);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rf::engine
