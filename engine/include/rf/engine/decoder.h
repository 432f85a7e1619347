// Sequences of a causal language model that grow token by token. The keys and values of their tokens are kept, so that
// a step computes the new tokens alone.
//
// The logits of a token have the same bits as those that Model::logits gives for the whole sequence, whatever other
// sequences are computed with it, in how many steps it came, and for any number of threads. Where a rotation changes as
// a sequence grows (dynamic, longrope and xpos), tokens are met with the present rotation in every layer, but the
// states that they had when they came stay, as in every cache, so that logits differ from those of the whole sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "rf/engine/model.h"

namespace rf::engine {

// Throws as Model does. The model must outlive it; not for use by several threads at once.
class RF_ENGINE_API Decoder {
 public:
  // Room for sequences of at most max_tokens tokens, 2 layers hidden_size elements for each. Throws for a model that is
  // no causal language model, and for more tokens than it has positions.
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
  // of each. A call that throws changes nothing.
  void append(std::span<const int64_t> sequences, std::span<const int64_t> offsets, std::span<const int32_t> ids,
              float* logits);
  // Sequence `to` becomes what `from` is; what both begin with is not copied.
  void copy(int64_t from, int64_t to);
  // Drops all but the first tokens.
  void truncate(int64_t sequence, int64_t tokens);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rf::engine
