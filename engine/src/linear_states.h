// The state of linear attention for the tokens of a sequence so far: sums over their keys, of a size that does not
// depend on the number of tokens. The sums contain keys with the rotation of the time they were added.
#pragma once

#include <cstdint>
#include <memory>

#include "sequence_cache.h"

namespace rf::engine {

// Of one layer, sequence and head.
struct LinearState {
  double* sums = nullptr;     // as rf_linear_attention_args has them; nullptr: none are kept
  double* maximum = nullptr;  // shen and favor: the sums are divided by its exponential
};

class LinearStates : public SequenceCache {
 public:
  struct Shape {
    int64_t layers = 0, heads = 0, sums = 0;  // numbers of a head
    int64_t sequences = 0, capacity = 0;      // tokens of a sequence
  };

  // Throws std::bad_alloc. Memory is taken from the system as sequences begin.
  explicit LinearStates(const Shape& shape);

  LinearState of(int64_t layer, int64_t sequence, int64_t head) const;
  // The states of a sequence before its first token.
  void clear(int64_t sequence);
  // No token can be taken out of a sum.
  bool can_truncate(int64_t sequence, int64_t tokens) const override {
    return tokens == 0 || tokens == length(sequence);
  }

 protected:
  void copy_kept(int64_t from, int64_t to, int64_t first) override;

 private:
  Shape shape_;
  std::unique_ptr<double[]> sums_;    // [layers, sequences, heads, sums]
  std::unique_ptr<double[]> maxima_;  // [layers, sequences, heads]
};

}  // namespace rf::engine
