// Schedules computations of many sequences: batches of at most a token budget, equal sequences computed once, and a
// queue for the requests of several threads. The bits of a result do not depend on the schedule (rf/engine/model.h).
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "rf/engine/model.h"

namespace rf::engine {

// The tokens of a batch. A sequence longer than the budget is a separate batch.
class TokenBudget {
 public:
  explicit TokenBudget(int64_t tokens) : budget_(tokens) {}
  // Adds a sequence to the batch, if it fits or is the first.
  bool take(int64_t tokens) {
    if (used_ > 0 && tokens > budget_ - used_) return false;
    used_ += tokens;
    return true;
  }

 private:
  int64_t budget_, used_ = 0;
};

// Calls compute(first, count) for all sequences in order, a batch at a time. offsets: as in Tokens, but sequences may
// be empty. Allocates no memory.
template <typename Compute>
void for_batches(std::span<const int64_t> offsets, int64_t token_budget, const Compute& compute) {
  const int64_t sequences = std::ssize(offsets) - 1;
  for (int64_t first = 0, end = 0; first < sequences; first = end) {
    TokenBudget budget(token_budget);
    while (end < sequences && budget.take(offsets[end + 1] - offsets[end])) ++end;
    compute(first, end - first);
  }
}

// Sequences first .. first + count - 1; `offsets` receives their offsets, from 0.
RF_ENGINE_API Tokens slice(const Tokens& tokens, int64_t first, int64_t count, std::vector<int64_t>& offsets);

// Leaves out empty sequences, which a Model does not read; `offsets` receives the offsets of the others.
RF_ENGINE_API Tokens without_empty(const Tokens& tokens, std::vector<int64_t>& offsets);

// Throws Error if offsets and sizes do not describe sequences of at least `shortest` tokens each.
RF_ENGINE_API void check_tokens(const Tokens& tokens, int64_t shortest);

// A computation on sequences: run(tokens, out) writes `columns` numbers for each sequence or for each token.
struct Computation {
  std::function<void(const Tokens&, float* out)> run;
  int64_t columns = 0;
  enum class Rows { kSequences, kTokens } rows = Rows::kSequences;
  // Computations with the same pointer share a turn of RequestQueue; nullptr: this one has a separate turn.
  const void* turn = nullptr;
  // A request with this function has one sequence. One call of it, in place of run, computes the waiting requests of a
  // turn; it must not throw.
  void (*run_together)(std::span<const Computation* const> all) = nullptr;

  // The first row of a sequence, or of the sequence after the last.
  int64_t row_of(std::span<const int64_t> offsets, int64_t sequence) const {
    return rows == Rows::kTokens ? offsets[static_cast<size_t>(sequence)] : sequence;
  }
  int64_t rows_of(const Tokens& tokens) const { return row_of(tokens.offsets, std::ssize(tokens.offsets) - 1); }
  // The part of `all`, the rows of all sequences, that belongs to one sequence.
  std::span<const float> of_sequence(std::span<const float> all, std::span<const int64_t> offsets,
                                     int64_t sequence) const {
    const int64_t begin = row_of(offsets, sequence) * columns, end = row_of(offsets, sequence + 1) * columns;
    return all.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  }
};
// Model::logits; the model must outlive it.
RF_ENGINE_API Computation logits_of(const Model& model);

// Sequences for one call; equal sequences are computed once.
class RF_ENGINE_API DistinctSequences {
 public:
  // types: as many as ids, or empty.
  void add(std::span<const int32_t> ids, std::span<const uint8_t> types) {
    add(ids, {types.begin(), types.end()}, {}, {});
  }
  void add(const Tokens& tokens);  // without positions
  Tokens tokens() const;
  // The rows of all sequences, equal ones included, in the order in which they were added.
  std::vector<float> compute(const Computation& computation) const;
  // The same from the rows of tokens().
  std::vector<float> rows_of_all(const Computation& computation, std::vector<float> distinct) const;

 private:
  using Sequence = std::tuple<std::vector<int32_t>, std::vector<int32_t>, std::vector<uint8_t>, std::vector<uint8_t>>;
  void add(std::span<const int32_t> ids, std::vector<int32_t> types, std::vector<uint8_t> attend,
           std::vector<uint8_t> pooled);

  std::vector<int32_t> ids_, types_;
  std::vector<uint8_t> attend_, pooled_;      // pooled_: where it is not given, as attend_
  std::vector<int64_t> offsets_{0}, places_;  // places_: of each added sequence among the distinct ones
  std::map<Sequence, int64_t> numbers_;
};

// The error of a request that was cancelled or that a queue had not computed when it stopped.
struct RF_ENGINE_API RequestCancelled : std::runtime_error {
  RequestCancelled() : std::runtime_error("[queue] a request must wait for its result, got one that was cancelled") {}
};

// Computes the requests of several threads in one worker thread, with as many OpenMP threads as the constructing thread
// would use. A batch joins waiting sequences of requests for the same computation, up to the token budget. Different
// computations take turns. A forked child must construct a new queue.
class RF_ENGINE_API RequestQueue {
 public:
  struct Options {
    int64_t token_budget = 4096;
    // The target time of a batch if many requests wait; otherwise the target is an eighth of it. The speed of earlier
    // batches turns it into tokens, at least 128 and at most the budget. Whenever a batch has run for a 24th of this
    // time (for all of it if many requests wait), it pauses between two layers (rf/engine/interrupt.h) for requests
    // that take at most a twelfth of it. 0: no target and no pauses.
    double batch_s = 0;
    // Of all unfinished requests; a longer request is taken only while the queue is empty.
    int64_t max_tokens = std::numeric_limits<int64_t>::max();
    enum class Order {
      kShared,  // each waiting request gets an equal share of a batch, so a short one need not wait for a long one
      kGiven,
    } order = Order::kShared;
  };
  explicit RequestQueue(const Options& options);
  ~RequestQueue();  // stops
  RequestQueue(const RequestQueue&) = delete;
  RequestQueue& operator=(const RequestQueue&) = delete;

  // Called in the queue's thread after each batch with sequences of the request; `done` sequences are in `out`. The
  // last call, which is always made, reports all sequences or an error, and ends the request. An error concerns only
  // this request. Must neither throw nor wait for the queue.
  using Progress = std::function<void(int64_t done, const std::exception_ptr& error)>;
  enum class WhenFull { kWait, kRefuse, kTake };
  // Adds a request and returns its number; nullopt if it is refused. Sequences may be empty if the computation allows
  // it, and must come without positions. Tokens, `out`, [rows, columns], and the computation must stay valid until the
  // request ends. Only requests with the same Computation object are joined. Throws Error for invalid tokens, and
  // RequestCancelled after stop().
  std::optional<uint64_t> submit(const Computation& computation, const Tokens& tokens, float* out, Progress progress,
                                 WhenFull when_full = WhenFull::kWait);
  // Ends a request early, with RequestCancelled; a batch for it alone is interrupted (rf/engine/interrupt.h).
  void cancel(uint64_t request);
  // Cancels all requests.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rf::engine
