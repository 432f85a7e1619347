// Sequences of a causal language model that grow token by token. The keys and values of their tokens are kept, or, with
// linear attention, sums over them, so a step only computes the new tokens.
//
// With softmax attention, the logits of a token have the same bits as Model::logits for the whole sequence, whatever
// the other sequences of a call, the number of steps and the number of threads. A sequence that passes the training
// length of longrope is computed anew in that step, as in transformers. If a rotation changes further as a sequence
// grows (dynamic and xpos), every layer uses the present rotation for all tokens, but earlier tokens keep their states,
// as in every cache, so logits differ from logits of the whole sequence.
//
// In a prefix language model (config.h) the tokens of the first append() to an empty sequence are its prefix, of type
// 0, and later tokens have type 1.
//
// With linear attention, neither the memory of a sequence nor the time of a step depends on its length. Logits equal
// the whole sequence's logits except for rounding: their bits depend on the steps of the sequence, but not on other
// sequences or the number of threads. A token cannot be removed from the sums, so truncate() keeps no tokens or all. A
// rotation that changes within max_tokens is refused, because the sums contain rotated keys.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "rf/engine/model.h"

namespace rf::engine {

class SequenceCache;

// Throws like Model. The model must outlive it; only one thread at a time may use it.
class RF_ENGINE_API Decoder {
 public:
  // Room for sequences of at most max_tokens tokens: 2 layers hidden_size elements for each; with linear attention
  // layers (hidden_size + heads) features numbers of float64 for each sequence. Throws for a model that is not a causal
  // language model, and for more tokens than it has positions.
  Decoder(const Model& model, int64_t sequences, int64_t max_tokens);
  ~Decoder();
  Decoder(Decoder&&) noexcept;
  Decoder& operator=(Decoder&&) noexcept;

  int64_t sequences() const;
  int64_t max_tokens() const;
  // The tokens of a sequence; initially empty.
  std::span<const int32_t> ids(int64_t sequence) const;

  // The new tokens of a sequence whose logits append() gives.
  enum class Logits { kLast, kAll };
  // Sequence sequences[i] grows by ids[offsets[i]] .. ids[offsets[i + 1] - 1], at least one token. sequences:
  // ascending; offsets: [sequences.size() + 1]. logits: [sequences.size(), vocab_size], for the token after the last
  // one of each; or [ids.size(), vocab_size], after each, with the same bits. A call that throws changes nothing,
  // except that linear attention, and a sequence that is computed anew, lose their tokens if memory runs out.
  void append(std::span<const int64_t> sequences, std::span<const int64_t> offsets, std::span<const int32_t> ids,
              float* logits, Logits of = Logits::kLast);
  // Sequence `to` becomes a copy of `from`; keys and values of a common prefix are not copied.
  void copy(int64_t from, int64_t to);
  // Keeps only the first `tokens` tokens. With linear attention, `tokens` must be 0 or the current length. With
  // longrope, a sequence cut back below the training length keeps the states computed beyond that length.
  void truncate(int64_t sequence, int64_t tokens);

 private:
  friend class Generator;
  // append() to several decoders of one model together. all: not empty; each has at least one sequence.
  struct Growth {
    Decoder* decoder;
    std::span<const int64_t> sequences, offsets;
    std::span<const int32_t> ids;
  };
  static void append(std::span<const Growth> all, float* logits);
  // False with linear attention, and if append() would recompute a whole sequence.
  bool may_join(std::span<const int64_t> sequences, std::span<const int64_t> offsets) const;
  SequenceCache& cache();
  // Makes room for `tokens` tokens, up to the model's positions, and keeps the sequences; false if it cannot.
  bool grow(int64_t tokens);
  // Whether a kept token has the same state as in a new sequence. Its state then depends only on the tokens up to it,
  // not on the steps that added them or on how long the sequence was, or becomes with `tokens`.
  bool keeps_states(int64_t tokens = 0) const;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rf::engine
