// Tasks and threads of the fused attention (see the header). A task of the forward is a group of neighbouring query
// tiles of one head, so its result does not depend on the thread that takes it.
#include "attention/fused.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "attention/entries.h"
#include "attention/kernels.h"
#include "attention/problem.h"
#include "attention/terms.h"
#include "common/parallel_tasks.h"

namespace rf::core {
namespace {

// Neighbouring query tiles of one head of one entry.
struct ForwardTask {
  int64_t entry, head, first, tiles;
};

// The tasks of a call: entry by entry, in it head by head.
class ForwardTasks {
 public:
  ForwardTasks(const AttentionEntries& entries, int64_t heads, int64_t threads)
      : entries_(entries), heads_(heads), query_tile_(attention_query_tile()) {
    constexpr int64_t kTasksOfThread = 4;
    // Fewer tiles per task if there would be too few tasks for the threads.
    while (compute_ends() < kTasksOfThread * threads && group_ > 1) group_ /= 2;
  }

  int64_t count() const { return ends_.empty() ? 0 : ends_.back(); }
  ForwardTask operator[](int64_t task) const {
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), task);
    const int64_t entry = end - ends_.begin(), index = task - (end == ends_.begin() ? 0 : *(end - 1));
    const int64_t first = index % groups(entry) * group_;
    return {entry, index / groups(entry), first, std::min(group_, tiles(entry) - first)};
  }

 private:
  int64_t tiles(int64_t entry) const { return (entries_.queries(entry) + query_tile_ - 1) / query_tile_; }
  int64_t groups(int64_t entry) const { return (tiles(entry) + group_ - 1) / group_; }
  // The ends of the entries' tasks with groups of group_ tiles; returns the number of tasks.
  int64_t compute_ends() {
    ends_.clear();
    for (int64_t i = 0; i < entries_.count(); ++i) ends_.push_back(count() + heads_ * groups(i));
    return count();
  }

  // Belongs to the calling thread; kept for its next call.
  static std::vector<int64_t>& kept() {
    thread_local std::vector<int64_t> ends;
    return ends;
  }

  const AttentionEntries& entries_;
  int64_t heads_, query_tile_, group_ = kForwardGroup;
  std::vector<int64_t>& ends_ = kept();  // of an entry's tasks
};

// Tasks that a thread takes together: neighbours share pages, and a task reads rows that the previous task prefetched.
int64_t neighbouring_tasks(int64_t tasks) { return std::max<int64_t>(1, tasks / (8 * int64_t{omp_get_max_threads()})); }

}  // namespace

void attention_fused(const rf_attention_args& args) {
  const AttentionEntries entries(args);
  const ForwardTasks tasks(entries, args.heads, omp_get_max_threads());
  if (tasks.count() == 0) return;
  const AttentionProblem problem(args);
  const int64_t bytes = attention_forward_bytes(problem);
  const TaskLoop loop{tasks.count(), tasks.count() > 1, bytes, neighbouring_tasks(tasks.count())};
  parallel_tasks<Schedule::kDynamic>(loop, [&](int64_t i, void* space) {
    const ForwardTask task = tasks[i];
    const AttentionEntry entry(problem, entries, task.entry);
    attention_forward_tiles(entry.problem, entry.b, task.head, task.first, task.tiles, space);
  });
}

namespace {

// Gradients of one term: the caller's array, and a part of it for each query head.
struct TermGradient {
  float* HeadTermGradients::*slot;
  void* gradient;
  int64_t rows, width;  // of a head
  bool shared;          // by all heads
  int64_t offset = 0;   // in the sums of a chunk, with space for every head

  int64_t stride() const { return width == 1 ? 1 : padded(width); }  // the sums' rows are whole vectors
  int64_t head_size() const { return rows * stride(); }
};

std::vector<TermGradient> wanted_terms(const rf_attention_args& x, const rf_attention_grads& grads) {
  std::vector<TermGradient> terms;
  for (const TableTerm& term : kTableTerms) {
    const rf_attention_table& table = x.*term.member;
    terms.push_back({term.sum, grads.*term.gradient, term.rows(x), table.width, table.heads == 1});
  }
  for (const NumbersTerm& term : kNumbersTerms) {
    terms.push_back({term.sum, grads.*term.gradient, term.rows(x), term.width(x), false});
  }
  std::erase_if(terms, [](const TermGradient& term) { return term.gradient == nullptr; });
  return terms;
}

// The gradients of terms, which all entries and sometimes all heads share. Entries are added up in a fixed number of
// chunks, each in order, and the chunks in order: the sum has the same bits for any number of threads.
class TermSums {
 public:
  TermSums(const rf_attention_args& x, const rf_attention_grads& grads, int64_t entries, int64_t max_chunks)
      : x_(x),
        entries_(entries),
        terms_(wanted_terms(x, grads)),
        chunks_(std::min({entries, max_chunks, terms_.empty() ? entries : kChunks})) {
    for (TermGradient& term : terms_) {
      term.offset = chunk_size_;
      chunk_size_ += x.heads * term.head_size();
    }
    sums_.resize(static_cast<size_t>(chunks_ * chunk_size_));
    heads_.resize(static_cast<size_t>(chunks_ * x.heads));
    for (int64_t i = 0; i < chunks_ * x.heads; ++i) {
      for (const TermGradient& term : terms_) {
        heads_[static_cast<size_t>(i)].*term.slot =
            sums_.data() + i / x.heads * chunk_size_ + term.offset + i % x.heads * term.head_size();
      }
    }
  }

  bool wanted() const { return !terms_.empty(); }
  int64_t chunks() const { return chunks_; }
  int64_t first_entry(int64_t chunk) const { return entries_ * chunk / chunks_; }

  // One entry per query head.
  const HeadTermGradients* of(int64_t chunk) const { return heads_.data() + chunk * x_.heads; }

  void write() const {
    for (const TermGradient& term : terms_) {
      const int64_t rows = term.shared ? term.rows : x_.heads * term.rows;
#pragma omp parallel for schedule(static) if (rows * term.width > 4096)
      for (int64_t row = 0; row < rows; ++row) write_row(term, row);
    }
  }

 private:
  static constexpr int64_t kChunks = 4;

  void write_row(const TermGradient& term, int64_t row) const {
    const int64_t parts = term.shared ? x_.heads : 1;
    float* to = static_cast<float*>(term.gradient) + row * term.width;
    for (int64_t d = 0; d < term.width; ++d) {
      const float* from = sums_.data() + term.offset + row * term.stride() + d;
      float sum = 0;
      for (int64_t chunk = 0; chunk < chunks_; ++chunk) {
        for (int64_t part = 0; part < parts; ++part) sum += from[chunk * chunk_size_ + part * term.head_size()];
      }
      to[d] = sum;
    }
  }

  const rf_attention_args& x_;
  int64_t entries_;
  std::vector<TermGradient> terms_;
  int64_t chunks_, chunk_size_ = 0;
  std::vector<float> sums_;
  std::vector<HeadTermGradients> heads_;
};

// Gradients of kappa, and of cos and sin: rows for each head of each entry. If entries or heads share them, they are
// summed in order afterwards.
class RowSums {
 public:
  RowSums(const rf_attention_args& x, const rf_attention_grads& grads, rf_attention_grads& written) : x_(x) {
    if (grads.key_score != nullptr) {
      const rf_attention_scores& kappa = x.key_score;
      std::fill_n(static_cast<float*>(grads.key_score), kappa.batch * kappa.heads * x.keys, 0.0f);
      add({kappa.batch, 1, kappa.heads, x.heads, x.keys}, grads, written, &rf_attention_grads::key_score);
    }
    for (const RotationTerm& term : kRotationTerms) {
      const rf_attention_rotation& rotation = x.*term.member;
      if (rotation.cos == nullptr) continue;
      const Shape shape{rotation.batch, term.tokens(x), term.heads(x), term.all_heads(x), rotation.pairs};
      for (const auto member : {term.cos_gradient, term.sin_gradient}) add(shape, grads, written, member);
    }
  }

  void write() const {
    for (const Shared& shared : shared_) write(shared);
  }

 private:
  struct Shape {
    int64_t batch, tokens, heads, all_heads, width;  // of the gradient; all_heads: of the rows
  };
  struct Shared {
    Shape shape;
    float* gradient;
    std::vector<float> rows;  // [B, tokens, all heads, width]
  };

  void add(const Shape& s, const rf_attention_grads& grads, rf_attention_grads& written,
           void* rf_attention_grads::*member) {
    if (grads.*member == nullptr || (s.batch == x_.batch && s.heads == s.all_heads)) return;
    const int64_t size = x_.batch * s.tokens * s.all_heads * s.width;
    shared_.push_back({s, static_cast<float*>(grads.*member), std::vector<float>(static_cast<size_t>(size))});
    written.*member = shared_.back().rows.data();
  }

  void write(const Shared& shared) const {
    const int64_t batch = shared.shape.batch, tokens = shared.shape.tokens, heads = shared.shape.heads,
                  all_heads = shared.shape.all_heads, width = shared.shape.width;  // no bindings in OpenMP
    std::fill_n(shared.gradient, batch * tokens * heads * width, 0.0f);
#pragma omp parallel for schedule(static) if (x_.batch * tokens * all_heads * width > 65536)
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t b = 0; b < x_.batch; ++b) {
        for (int64_t h = 0; h < all_heads; ++h) {
          const float* from = shared.rows.data() + ((b * tokens + t) * all_heads + h) * width;
          const int64_t row = ((batch == 1 ? 0 : b) * tokens + t) * heads + (heads == 1 ? 0 : h);
          for (int64_t i = 0; i < width; ++i) shared.gradient[row * width + i] += from[i];
        }
      }
    }
  }

  const rf_attention_args& x_;
  std::vector<Shared> shared_;
};

// The gradient of P is accumulated in place, because a second copy would be too large: one task sums the numbers that
// entries or heads share, entry by entry and head by head. Parts of the keys share no numbers.
struct PairOrder {
  PairOrder(const rf_attention_args& x, const rf_attention_grads& grads)
      : entries(grads.pair_bias != nullptr && x.pair_bias.batch != x.batch),
        heads(grads.pair_bias != nullptr && x.pair_bias.heads != x.heads) {}
  bool entries, heads;  // whether they are in order
};

void clear_pair_bias(const rf_attention_args& x, const rf_attention_grads& grads) {
  if (grads.pair_bias == nullptr) return;
  const int64_t rows = x.pair_bias.batch * x.pair_bias.heads * x.queries;
#pragma omp parallel for schedule(static) if (rows * x.keys > 4096)
  for (int64_t row = 0; row < rows; ++row) {
    std::fill_n(static_cast<float*>(grads.pair_bias) + row * x.keys, x.keys, 0.0f);
  }
}

// The number of parts in which the keys of each key head are computed: several if there are fewer key heads than
// threads, two per thread, because causal parts differ in work. Gradients of terms are summed over all keys in one
// order, in one part.
int64_t parts_of_keys(int64_t heads, int64_t keys, bool has_terms, int64_t threads) {
  constexpr int64_t kMinKeys = 2 * kKeyTile;
  if (heads >= threads || heads == 0 || has_terms) return 1;
  return std::clamp<int64_t>(keys / kMinKeys, 1, 2 * ((threads + heads - 1) / heads));
}

// The sums of queries on their way through the parts of the keys, of every key head.
class QuerySums {
 public:
  QuerySums(int64_t heads, int64_t parts, int64_t size)
      : parts_(parts),
        size_(parts == 1 ? 0 : size),
        sums_(static_cast<size_t>(heads * size_)),
        done_(static_cast<size_t>(heads * parts)) {}

  KeyPart part(int64_t head, int64_t index, int64_t keys) {
    const int64_t tiles = (keys + kKeyTile - 1) / kKeyTile;
    KeyPart part{tiles * index / parts_ * kKeyTile, std::min(keys, tiles * (index + 1) / parts_ * kKeyTile)};
    if (index > 0) part.before = &done(head, index - 1);
    if (index + 1 < parts_) part.done = &done(head, index);
    part.sums = sums_.data() + head * size_;
    return part;
  }
  // Prevents threads from waiting for a part that is not computed.
  void give_up(int64_t head, int64_t index) { done(head, index) = INT64_MAX; }

 private:
  std::atomic<int64_t>& done(int64_t head, int64_t index) { return done_[static_cast<size_t>(head * parts_ + index)]; }

  int64_t parts_, size_;
  std::vector<float> sums_;
  std::vector<std::atomic<int64_t>> done_;  // groups of query tiles, of every part
};

}  // namespace

void attention_fused_backward(const rf_attention_args& args, const rf_attention_grads& grads) {
  const AttentionEntries entries(args);
  const AttentionProblem problem(args);
  const PairOrder in_order(args, grads);
  TermSums sums(args, grads, entries.count(), in_order.entries ? 1 : entries.count());
  rf_attention_grads written = grads;
  const RowSums rows(args, grads, written);
  clear_pair_bias(args, grads);
  const rf_attention_args largest = entries.largest();
  const AttentionProblem sized(problem, largest, 0);
  const int64_t bytes = attention_backward_bytes(sized);
  // A task shares sums with no other task: it takes one or all key heads of a chunk of entries.
  const int64_t heads_at_once = in_order.heads ? args.key_heads : 1;
  const int64_t lanes = args.heads == 0 ? 0 : sums.chunks() * args.key_heads / heads_at_once;
  const int64_t parts = parts_of_keys(lanes, largest.keys, sums.wanted(), omp_get_max_threads());
  QuerySums query_sums(entries.count() * args.key_heads, parts, attention_query_sums(sized));
  const TaskLoop loop{lanes * parts, lanes * parts > 1, bytes, neighbouring_tasks(lanes * parts)};
  // Calls action with each entry and key head of a task, in order, and with its part of the keys. Parts are ordered, so
  // the part that a task waits for has begun.
  const auto for_each_head = [&](int64_t task, const auto& action) {
    const int64_t first_head = task % lanes * heads_at_once, part = task / lanes;
    const int64_t chunk = first_head / args.key_heads, begin = first_head % args.key_heads;
    for (int64_t i = sums.first_entry(chunk); i < sums.first_entry(chunk + 1); ++i) {
      for (int64_t head = begin; head < begin + heads_at_once; ++head) action(i, head, chunk, part);
    }
  };
  const auto run = [&](int64_t task, void* space) {
    for_each_head(task, [&](int64_t i, int64_t key_head, int64_t chunk, int64_t part) {
      const AttentionEntry entry(problem, entries, i);
      attention_backward_heads(entry.problem, entries.grads(i, written), entry.b, key_head,
                               query_sums.part(i * args.key_heads + key_head, part, entries.keys(i)), sums.of(chunk),
                               space);
    });
  };
  parallel_tasks<Schedule::kDynamic>(loop, run, [&](int64_t task) {
    for_each_head(task, [&](int64_t i, int64_t key_head, int64_t, int64_t part) {
      query_sums.give_up(i * args.key_heads + key_head, part);
    });
  });
  sums.write();
  rows.write();
}

}  // namespace rf::core
