// Tasks and threads of the fused attention (see the header). A task of the forward is a group of neighbouring query
// tiles of one head, so that whichever thread takes it, its result is the same.
#include "attention_fused.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <vector>

#include "attention_backward.h"
#include "attention_forward.h"
#include "attention_problem.h"
#include "error.h"
#include "scratch.h"

namespace rf::core {
namespace {

// Fewer tiles a task where there would be too few tasks for the threads.
int64_t tiles_of_task(int64_t heads, int64_t tiles, int64_t threads) {
  constexpr int64_t kTasksOfThread = 4;
  int64_t group = kForwardGroup;
  while (group > 1 && heads * ((tiles + group - 1) / group) < kTasksOfThread * threads) group /= 2;
  return group;
}

// Tasks that a thread takes at once: neighbours share pages, and what one asks for ahead the next one reads.
int64_t neighbouring_tasks(int64_t tasks) {
  return std::max<int64_t>(1, tasks / (8 * int64_t{omp_get_max_threads()}));
}

}  // namespace

void attention_fused(const rf_attention_args& args) {
  const AttentionProblem problem(args);
  const int64_t heads = args.batch * args.heads;
  if (heads == 0 || args.queries == 0) return;
  const int64_t query_tile = attention_query_tile();
  const int64_t tiles = (args.queries + query_tile - 1) / query_tile;
  const int64_t group = tiles_of_task(heads, tiles, omp_get_max_threads());
  const int64_t groups = (tiles + group - 1) / group;
  const int64_t bytes = attention_forward_bytes(problem);
  std::atomic<bool> out_of_memory = false;
  const int64_t chunk = neighbouring_tasks(heads * groups);
#pragma omp parallel for schedule(dynamic, chunk) if (heads * groups > 1)
  for (int64_t task = 0; task < heads * groups; ++task) {
    void* space = thread_scratch(bytes);
    if (space == nullptr) {
      out_of_memory = true;
      continue;
    }
    const int64_t head = task / groups, first = task % groups * group;
    attention_forward_tiles(problem, head / args.heads, head % args.heads, first, std::min(group, tiles - first),
                            space);
  }
  if (out_of_memory) throw std::bad_alloc();
}

namespace {

// Gradients of one term: the caller's array, and a part of it for each query head.
struct TermGradient {
  float* HeadTermGradients::*slot;
  void* gradient;
  int64_t rows, width;  // of a head
  bool shared;          // by all heads
  int64_t offset = 0;   // in the sums of a chunk, which has room for every head

  int64_t stride() const { return width == 1 ? 1 : padded(width); }  // the sums' rows are whole vectors
  int64_t head_size() const { return rows * stride(); }
};

std::vector<TermGradient> wanted_terms(const rf_attention_args& x, const rf_attention_grads& grads) {
  const auto of_table = [](float* HeadTermGradients::*slot, const rf_attention_table& table, void* gradient) {
    return TermGradient{slot, gradient, table.hi - table.lo + 1, table.width, table.heads == 1};
  };
  const auto of_heads = [](float* HeadTermGradients::*slot, int64_t rows, int64_t width, void* gradient) {
    return TermGradient{slot, gradient, rows, width, false};
  };
  using Terms = HeadTermGradients;
  std::vector<TermGradient> terms = {of_table(&Terms::table_k, x.table_k, grads.table_k),
                                     of_table(&Terms::table_q, x.table_q, grads.table_q),
                                     of_table(&Terms::table_v, x.table_v, grads.table_v),
                                     of_table(&Terms::bias, x.bias, grads.bias),
                                     of_heads(&Terms::u, 1, x.head_dim, grads.u),
                                     of_heads(&Terms::w, 1, x.head_dim, grads.w),
                                     of_heads(&Terms::a, x.positions, x.head_dim, grads.a),
                                     of_heads(&Terms::c, x.positions, x.head_dim, grads.c),
                                     of_heads(&Terms::row, 1, 1, grads.row),
                                     of_heads(&Terms::col, 1, 1, grads.col)};
  std::erase_if(terms, [](const TermGradient& term) { return term.gradient == nullptr; });
  return terms;
}

// The gradients of terms, which all batch entries and sometimes all heads share. Entries are added up in a fixed number
// of chunks, each in order, and the chunks in order: the sum has the same bits for any number of threads.
class TermSums {
 public:
  TermSums(const rf_attention_args& x, const rf_attention_grads& grads)
      : x_(x), terms_(wanted_terms(x, grads)), chunks_(terms_.empty() ? x.batch : std::min<int64_t>(x.batch, kChunks)) {
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

  int64_t chunks() const { return chunks_; }
  int64_t first_entry(int64_t chunk) const { return x_.batch * chunk / chunks_; }

  // An entry a query head.
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
  std::vector<TermGradient> terms_;
  int64_t chunks_, chunk_size_ = 0;
  std::vector<float> sums_;
  std::vector<HeadTermGradients> heads_;
};

}  // namespace

void attention_fused_backward(const rf_attention_args& args, const rf_attention_grads& grads) {
  const AttentionProblem problem(args);
  TermSums sums(args, grads);
  const int64_t bytes = attention_backward_bytes(problem);
  const int64_t tasks = args.heads == 0 ? 0 : sums.chunks() * args.key_heads;
  std::atomic<bool> out_of_memory = false;
  const int64_t neighbours = neighbouring_tasks(tasks);
#pragma omp parallel for schedule(dynamic, neighbours) if (tasks > 1)
  for (int64_t task = 0; task < tasks; ++task) {
    const int64_t chunk = task / args.key_heads, key_head = task % args.key_heads;
    void* space = thread_scratch(bytes);
    if (space == nullptr) {
      out_of_memory = true;
      continue;
    }
    for (int64_t b = sums.first_entry(chunk); b < sums.first_entry(chunk + 1); ++b) {
      attention_backward_heads(problem, grads, b, key_head, sums.of(chunk), space);
    }
  }
  if (out_of_memory) throw std::bad_alloc();
  sums.write();
}

}  // namespace rf::core
