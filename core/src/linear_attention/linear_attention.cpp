// Linear attention (rf/linear_attention.h): chooses between the float64 loops and the chunks. A task of the chunks is a
// head of a sequence or, if there are too few heads for the threads, a block of a head.
#include "rf/linear_attention.h"

#include <omp.h>

#include <algorithm>
#include <span>
#include <vector>

#include "common/arguments.h"
#include "common/error.h"
#include "common/parallel_tasks.h"
#include "common/target.h"
#include "linear_attention/checks.h"
#include "linear_attention/problem.h"
#include "linear_attention/reference.h"

namespace rf::core {
namespace {

bool in_loops(const rf_linear_attention_args& args) { return use_reference() || args.dtype == RF_F64; }

// One pass of a call.
struct PassCall {
  const LinearProblem& problem;
  const rf_linear_attention_grads* grads;  // NULL in the forward
  LinearPass pass;

  int64_t space_bytes() const {
    switch (pass) {
      case LinearPass::kForward: return linear_forward_bytes(problem);
      case LinearPass::kQueryGradient: return linear_query_gradient_bytes(problem);
      case LinearPass::kKeyGradient: return linear_key_gradient_bytes(problem);
    }
    return 0;
  }
  void run(const LinearTask& task, void* space) const {
    switch (pass) {
      case LinearPass::kForward: return linear_forward(problem, task, space);
      case LinearPass::kQueryGradient: return linear_query_gradient(problem, *grads, task, space);
      case LinearPass::kKeyGradient: return linear_key_gradient(problem, *grads, task, space);
    }
  }
};

// Key heads of all sequences.
int64_t heads_of(const rf_linear_attention_args& x) { return sequence_count(x) * x.key_heads; }

int64_t blocks_of(const rf_linear_attention_args& x, int64_t sequence) {
  return ChunkPlan(x.direction, sequence_of(x, sequence)).blocks();
}

// Each thread takes one head at a time.
void run_heads(const rf_linear_attention_args& x, std::span<const PassCall> calls) {
  int64_t bytes = 0;
  for (const PassCall& call : calls) bytes = std::max(bytes, call.space_bytes());
  const auto passes = static_cast<int64_t>(calls.size()), tasks = heads_of(x) * passes;
  parallel_tasks<Schedule::kDynamic>({tasks, tasks > 1, bytes}, [&](int64_t i, void* space) {
    const PassCall& call = calls[static_cast<size_t>(i % passes)];
    const int64_t sequence = i / passes / x.key_heads, key_head = i / passes % x.key_heads;
    call.run({call.pass, sequence, key_head, 0, blocks_of(x, sequence)}, space);
  });
}

// The sums at the start of each block of a head, and the sums of each block alone.
class BlockSums {
 public:
  BlockSums(int64_t numbers, int64_t borders) : numbers_(numbers), floats_(static_cast<size_t>(borders * 2 * numbers)) {
    float* next = floats_.data();
    for (int64_t i = 0; i < borders; ++i, next += 2 * numbers) borders_.push_back({next, next + numbers});
  }
  BorderSums& at(int64_t i) { return borders_[static_cast<size_t>(i)]; }
  int64_t numbers() const { return numbers_; }

 private:
  int64_t numbers_;
  std::vector<float> floats_;
  std::vector<BorderSums> borders_;
};

// The work of a block in a pass. If exponents rise, even a block that adds nothing changes the sums.
struct BlockWork {
  bool sums = false, answers = false;
};
BlockWork work_of(const rf_linear_attention_args& x, LinearPass pass, const ChunkPlan& plan, int64_t index) {
  const Block block = block_of(plan, pass, index);
  BlockWork work{x.key_exponents != nullptr, false};
  for (int64_t i = 0; i < block.count; ++i) {
    const Chunk chunk = plan.at(block.first + i * block.step);
    const bool sums_keys = pass != LinearPass::kKeyGradient;
    work.sums = work.sums || (sums_keys ? chunk.keys : chunk.queries) > 0;
    work.answers = work.answers || (sums_keys ? chunk.queries : chunk.keys) > 0;
  }
  return work;
}

// Threads take blocks of one head: first the sums of each, then, when those before each are known, the answers.
void run_blocks(const PassCall& call, int64_t sequence, int64_t key_head) {
  const LinearProblem& problem = call.problem;
  const ChunkPlan plan(problem.args.direction, sequence_of(problem.args, sequence));
  const int64_t blocks = plan.blocks(), bytes = call.space_bytes();
  const int64_t at_once = std::min<int64_t>(blocks, 4 * omp_get_max_threads());
  BlockSums own(sum_sizes(problem, call.pass).both(), at_once), before(own.numbers(), at_once + 1);
  BorderSums& behind = before.at(at_once);
  begin_sums(problem, call.pass, sequence, key_head, behind);
  std::vector<BlockWork> work(static_cast<size_t>(blocks));
  for (int64_t i = 0; i < blocks; ++i) {
    work[static_cast<size_t>(i)] = work_of(problem.args, call.pass, plan, i);
  }
  for (int64_t first = 0; first < blocks; first += at_once) {
    const int64_t count = std::min(at_once, blocks - first);
    const BlockWork* of = work.data() + first;
    parallel_tasks<Schedule::kDynamic>({count, true, bytes}, [&](int64_t i, void* space) {
      const int64_t block = first + i;
      if (of[i].sums) call.run({call.pass, sequence, key_head, block, block + 1, nullptr, &own.at(i)}, space);
    });
    for (int64_t i = 0; i < count; ++i) {
      std::copy_n(behind.sums, own.numbers(), before.at(i).sums);
      std::copy_n(behind.lost, own.numbers(), before.at(i).lost);
      if (of[i].sums) add_block(own.at(i), own.numbers(), behind);
    }
    parallel_tasks<Schedule::kDynamic>({count, true, bytes}, [&](int64_t i, void* space) {
      const int64_t block = first + i;
      if (of[i].answers) call.run({call.pass, sequence, key_head, block, block + 1, &before.at(i)}, space);
    });
  }
  if (call.pass == LinearPass::kForward) keep_state(problem, sequence, key_head, behind);
}

// Compares the time of both ways, in passes of a head on one thread. A shared causal head is summed twice; that costs
// about a third of a pass.
bool shares_heads(const rf_linear_attention_args& x, int64_t passes) {
  const int64_t threads = omp_in_parallel() != 0 ? 1 : omp_get_max_threads(), heads = heads_of(x);
  int64_t most_blocks = 0;
  for (int64_t i = 0; i < sequence_count(x); ++i) most_blocks = std::max(most_blocks, blocks_of(x, i));
  if (threads == 1 || most_blocks < 2) return false;
  const double shared = static_cast<double>(heads * passes) / static_cast<double>(threads);
  const double alone = static_cast<double>((heads * passes + threads - 1) / threads);
  return shared * (x.direction == RF_LINEAR_CAUSAL ? 4.0 / 3 : 1) < alone;
}

void run(const rf_linear_attention_args& x, std::span<const PassCall> calls) {
  if (heads_of(x) == 0) return;
  if (!shares_heads(x, static_cast<int64_t>(calls.size()))) return run_heads(x, calls);
  for (const PassCall& call : calls) {
    for (int64_t i = 0; i < heads_of(x); ++i) run_blocks(call, i / x.key_heads, i % x.key_heads);
  }
}

void forward(const rf_linear_attention_args& args) {
  const LinearProblem problem(args);
  const PassCall call{problem, nullptr, LinearPass::kForward};
  run(args, {&call, 1});
}

void backward(const rf_linear_attention_args& args, const rf_linear_attention_grads& grads) {
  const LinearProblem problem(args);
  // The longer one first.
  const PassCall calls[] = {{problem, &grads, LinearPass::kKeyGradient}, {problem, &grads, LinearPass::kQueryGradient}};
  const size_t first = grads.k == nullptr && grads.v == nullptr ? 1 : 0, end = grads.q == nullptr ? 1 : 2;
  if (first < end) run(args, {calls + first, end - first});
}

}  // namespace
}  // namespace rf::core

extern "C" rf_status rf_linear_attention_forward(const rf_linear_attention_args* args) {
  return rf::core::guarded("linear_attention", [&] {
    const rf_linear_attention_args x = rf::core::arguments("linear_attention", args);
    rf::core::check_linear_attention(x);
    rf::core::in_loops(x) ? rf::ref::linear_attention(x) : rf::core::forward(x);
  });
}

extern "C" rf_status rf_linear_attention_backward(const rf_linear_attention_args* args,
                                                  const rf_linear_attention_grads* grads) {
  return rf::core::guarded("linear_attention", [&] {
    const rf_linear_attention_args x = rf::core::arguments("linear_attention", args);
    const rf_linear_attention_grads g = rf::core::arguments("linear_attention", grads, "grads");
    rf::core::check_linear_attention(x);
    const bool in_loops = rf::core::in_loops(x);
    rf::core::check_linear_attention_grads(x, g, in_loops);
    in_loops ? rf::ref::linear_attention_backward(x, g) : rf::core::backward(x, g);
  });
}
