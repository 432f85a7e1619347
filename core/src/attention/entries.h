// A call of attention consists of independent entries: the entries of the batch, or packed sequences. Each packed
// sequence becomes a separate call that begins at its first tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/problem.h"

namespace rf::core {

class AttentionEntries {
 public:
  explicit AttentionEntries(const rf_attention_args& x);

  bool packed() const { return x_.cu_seqlens_q != nullptr; }
  int64_t count() const { return packed() ? x_.sequences : x_.batch; }
  int64_t queries(int64_t entry) const { return packed() ? tokens(x_.cu_seqlens_q, entry) : x_.queries; }
  int64_t keys(int64_t entry) const { return packed() ? tokens(x_.cu_seqlens_k, entry) : x_.keys; }

  // The call with the extents of the entry that needs the most work space.
  rf_attention_args largest() const;
  // The call of a packed sequence, as its batch entry 0.
  rf_attention_args sequence(int64_t entry) const;
  // The gradients of an entry.
  rf_attention_grads grads(int64_t entry, const rf_attention_grads& of_all) const;
  // The dropout index of the first element of a packed sequence; 0 without dropout.
  int64_t first_element(int64_t entry) const {
    return first_elements_.empty() ? 0 : first_elements_[static_cast<size_t>(entry)];
  }

 private:
  static int64_t tokens(const int64_t* cu_seqlens, int64_t i) { return cu_seqlens[i + 1] - cu_seqlens[i]; }

  const rf_attention_args& x_;
  std::vector<int64_t> first_elements_;
};

// One entry: batch entry b of `problem`.
struct AttentionEntry {
  AttentionEntry(const AttentionProblem& whole, const AttentionEntries& entries, int64_t entry)
      : b(entries.packed() ? 0 : entry),
        args(entries.packed() ? entries.sequence(entry) : whole.args),
        problem(whole, args, entries.packed() ? entries.first_element(entry) : 0) {}

  int64_t b;
  rf_attention_args args;
  AttentionProblem problem;
};

}  // namespace rf::core
