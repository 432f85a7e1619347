// Linear attention (rf/linear_attention.h): checks the arguments and chooses between the float64 loops and the chunks.
// A task of the chunks is a head of a sequence or, if there are too few heads for the threads, a block of a head.
#include "rf/linear_attention.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "common/arguments.h"
#include "common/element.h"
#include "common/parallel_tasks.h"
#include "common/reference.h"
#include "common/target.h"
#include "linear_attention/problem.h"

namespace rf::core {
namespace {

constexpr const char* kWhere = "linear_attention";

bool in_loops(const rf_linear_attention_args& args) { return use_reference() || args.dtype == RF_F64; }

void check_choices(const rf_linear_attention_args& x) {
  check_dtype(kWhere, x.dtype);
  require(x.direction == RF_LINEAR_BIDIRECTIONAL || x.direction == RF_LINEAR_CAUSAL, kWhere,
          "direction must be RF_LINEAR_BIDIRECTIONAL or RF_LINEAR_CAUSAL, got ", static_cast<int>(x.direction));
  require(x.denominator == RF_DENOMINATOR_PLAIN || x.denominator == RF_DENOMINATOR_ROTATED, kWhere,
          "denominator must be RF_DENOMINATOR_PLAIN or RF_DENOMINATOR_ROTATED, got ", static_cast<int>(x.denominator));
  require(x.feature_map >= RF_FEATURES_GIVEN && x.feature_map <= RF_FEATURES_RELU, kWhere,
          "feature_map must be RF_FEATURES_GIVEN, RF_FEATURES_ELU_PLUS_ONE or RF_FEATURES_RELU, got ",
          static_cast<int>(x.feature_map));
  require(std::isfinite(x.eps) && x.eps >= 0, kWhere, "eps must be finite and >= 0, got ", x.eps);
}

void check_extents(const rf_linear_attention_args& x) {
  check_at_least(kWhere, 0, {{x.batch, "batch"}, {x.queries, "queries"}, {x.keys, "keys"}});
  check_at_least(
      kWhere, 1,
      {{x.heads, "heads"}, {x.key_heads, "key_heads"}, {x.features, "features"}, {x.value_dim, "value_dim"}});
  require(x.heads % x.key_heads == 0, kWhere, "heads must be a multiple of key_heads = ", x.key_heads, ", got ",
          x.heads);
  check_size(kWhere, {x.batch, x.queries, x.heads, x.features}, "q");
  check_size(kWhere, {x.batch, x.keys, x.key_heads, x.features}, "k");
  check_size(kWhere, {x.batch, x.keys, x.key_heads, x.value_dim}, "v");
  check_size(kWhere, {x.batch, x.queries, x.heads, x.value_dim}, "out");
  // Work space has several sums with padded rows, and the state has one column more.
  constexpr int64_t kMaxWidth = int64_t{1} << 24;
  require(x.features <= kMaxWidth, kWhere, "features must be <= 2^24, got ", x.features);
  require(x.value_dim <= kMaxWidth, kWhere, "value_dim must be <= 2^24, got ", x.value_dim);
  check_size(kWhere, {x.batch, x.key_heads, x.features, x.value_dim + 1}, "state");
}

void check_arrays(const rf_linear_attention_args& x) {
  const int64_t queries = x.batch * x.queries * x.heads, keys = x.batch * x.keys * x.heads;
  const int64_t bytes = element_bytes(x.dtype);
  check_pointer(kWhere, x.q, queries, bytes, "q");
  check_pointer(kWhere, x.k, keys, bytes, "k");
  check_pointer(kWhere, x.v, keys, bytes, "v");
  check_reach(kWhere, {{x.batch, x.q_stride_b}, {x.queries, x.q_stride_t}, {x.heads, x.q_stride_h}}, "q");
  check_reach(kWhere, {{x.batch, x.k_stride_b}, {x.keys, x.k_stride_t}, {x.key_heads, x.k_stride_h}}, "k");
  check_reach(kWhere, {{x.batch, x.v_stride_b}, {x.keys, x.v_stride_t}, {x.key_heads, x.v_stride_h}}, "v");
  check_reach(kWhere, {{x.batch, x.out_stride_b}, {x.queries, x.out_stride_t}, {x.heads, x.out_stride_h}}, "out");
  check_reach(kWhere, {{x.batch, x.key_mask_stride_b}, {x.keys, x.key_mask_stride_s}}, "key_mask");
  check_pointer(kWhere, x.denominators, 0, sizeof(float), "denominators");
}

void check_state(const rf_linear_attention_args& x) {
  if (x.state == nullptr) return;
  check_pointer(kWhere, x.state, 0, sizeof(double), "state");
  require(x.direction == RF_LINEAR_CAUSAL, kWhere, "direction must be RF_LINEAR_CAUSAL with a state, got ",
          static_cast<int>(x.direction));
  for (int64_t i = 0; i < sequence_count(x); ++i) {
    const Sequence of = sequence_of(x, i);
    require(of.queries == of.keys, kWhere, "queries must equal keys = ", of.keys, " with a state, got ", of.queries);
  }
  if (x.key_exponents == nullptr) return;
  check_pointer(kWhere, x.state_exponents, sequence_count(x) * x.key_heads, sizeof(double), "state_exponents");
}

template <class Number>
void check_exponents_of(const rf_linear_attention_args& x, const Sequence& of) {
  const auto* all = static_cast<const Number*>(x.key_exponents) + of.entry * x.keys * x.key_heads;
  for (int64_t h = 0; h < x.key_heads; ++h) {
    Number least = -INFINITY;
    if (x.state != nullptr) least = static_cast<Number>(x.state_exponents[of.number * x.key_heads + h]);
    for (int64_t n = of.first_key; n < of.first_key + of.keys; ++n) {
      const Number own = all[n * x.key_heads + h];
      require(own >= least && own < INFINITY, kWhere,
              "key_exponents must be below infinity and not fall from key to key, got ", own, " after ", least);
      least = own;
    }
  }
}

void check_exponents(const rf_linear_attention_args& x) {
  if (x.key_exponents == nullptr) return;
  require(x.direction == RF_LINEAR_CAUSAL, kWhere, "direction must be RF_LINEAR_CAUSAL with key_exponents, got ",
          static_cast<int>(x.direction));
  require(x.feature_map == RF_FEATURES_GIVEN, kWhere, "feature_map must be RF_FEATURES_GIVEN with key_exponents, got ",
          static_cast<int>(x.feature_map));
  check_pointer(kWhere, x.key_exponents, 0, row_element_bytes(x.dtype), "key_exponents");
  for (int64_t i = 0; i < sequence_count(x); ++i) {
    const Sequence of = sequence_of(x, i);
    x.dtype == RF_F64 ? check_exponents_of<double>(x, of) : check_exponents_of<float>(x, of);
  }
}

void check_linear_attention(const rf_linear_attention_args& x) {
  check_choices(x);
  check_extents(x);
  check_arrays(x);
  const RotatedData rotated = {x.dtype, x.layout, x.batch, x.features};
  check_rotation(kWhere, rotated, x.query, "query");
  check_rotation(kWhere, rotated, x.key, "key");
  check_packing(kWhere, packing_of(x));
  check_state(x);
  check_exponents(x);
  const int64_t outputs = x.batch * x.queries * x.heads;
  check_pointer(kWhere, x.out, outputs, element_bytes(x.dtype), "out");
}

void check_linear_attention_grads(const rf_linear_attention_args& x, const rf_linear_attention_grads& grads) {
  require(x.state == nullptr, kWhere, "state must be NULL in the backward, got one");
  const int64_t outputs = x.batch * x.queries * x.heads, bytes = element_bytes(x.dtype);
  check_pointer(kWhere, grads.out, outputs, bytes, "grads.out");
  check_reach(kWhere, {{x.batch, grads.out_stride_b}, {x.queries, grads.out_stride_t}, {x.heads, grads.out_stride_h}},
              "grads.out");
  if (!in_loops(x)) check_pointer(kWhere, x.denominators, outputs, sizeof(float), "denominators");
  check_pointer(kWhere, grads.q, 0, bytes, "grads.q");
  check_pointer(kWhere, grads.k, 0, bytes, "grads.k");
  check_pointer(kWhere, grads.v, 0, bytes, "grads.v");
}

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
  check_linear_attention(args);
  if (in_loops(args)) return ref::linear_attention(args);
  const LinearProblem problem(args);
  const PassCall call{problem, nullptr, LinearPass::kForward};
  run(args, {&call, 1});
}

void backward(const rf_linear_attention_args& args, const rf_linear_attention_grads& grads) {
  check_linear_attention(args);
  check_linear_attention_grads(args, grads);
  if (in_loops(args)) return ref::linear_attention_backward(args, grads);
  const LinearProblem problem(args);
  // The longer one first.
  const PassCall calls[] = {{problem, &grads, LinearPass::kKeyGradient}, {problem, &grads, LinearPass::kQueryGradient}};
  const size_t first = grads.k == nullptr && grads.v == nullptr ? 1 : 0, end = grads.q == nullptr ? 1 : 2;
  if (first < end) run(args, {calls + first, end - first});
}

}  // namespace
}  // namespace rf::core

extern "C" rf_status rf_linear_attention_forward(const rf_linear_attention_args* args) {
  return rf::core::with_arguments("linear_attention", args, rf::core::forward);
}

extern "C" rf_status rf_linear_attention_backward(const rf_linear_attention_args* args,
                                                  const rf_linear_attention_grads* grads) {
  return rf::core::with_arguments("linear_attention", args, grads, rf::core::backward);
}
