// The order in which tokens are taken, and the sums at its begin and end (see the header).
#include "linear_attention/problem.h"

#include <algorithm>

namespace rf::core {

namespace {

// The numbers of a head's state, [F,Dv+1].
double* state_of(const rf_linear_attention_args& x, int64_t sequence, int64_t key_head) {
  return x.state + (sequence * x.key_heads + key_head) * x.features * (x.value_dim + 1);
}

// visit(number of the state, place among the sums) for all numbers of a state.
template <class Visit>
void for_each_number(const LinearProblem& problem, const Visit& visit) {
  const rf_linear_attention_args& x = problem.args;
  const int64_t row = x.features * problem.value_width;
  for (int64_t f = 0; f < x.features; ++f) {
    for (int64_t e = 0; e < x.value_dim; ++e) visit(f * (x.value_dim + 1) + e, f * problem.value_width + e);
    visit(f * (x.value_dim + 1) + x.value_dim, row + f);
  }
}

}  // namespace

ChunkPlan::ChunkPlan(rf_linear_direction direction, const Sequence& of) {
  if (direction == RF_LINEAR_CAUSAL) {
    const int64_t pairs = std::min(of.queries, of.keys), queries = of.queries - pairs, keys = of.keys - pairs;
    parts_[0] = {of.first_query, of.first_key, queries, true, false};
    parts_[1] = {of.first_query, of.first_key, keys, false, true};
    parts_[2] = {of.first_query + queries, of.first_key + keys, pairs, true, true};
  } else {
    parts_[0] = {of.first_query, of.first_key, of.keys, false, true};
    parts_[1] = {of.first_query, of.first_key, of.queries, true, false};
    parts_[2] = {};
  }
  for (const Part& part : parts_) count_ += part.chunks();
}

Chunk ChunkPlan::at(int64_t index) const {
  const Part* part = parts_;
  for (; index >= part->chunks(); ++part) index -= part->chunks();
  const int64_t begin = index * kChunk, tokens = std::min(kChunk, part->tokens - begin);
  return {part->first_query + begin, part->has_queries ? tokens : 0, part->first_key + begin,
          part->has_keys ? tokens : 0};
}

Block block_of(const ChunkPlan& plan, LinearPass pass, int64_t index) {
  const bool backwards = pass == LinearPass::kKeyGradient;
  const int64_t first = (backwards ? plan.blocks() - 1 - index : index) * kBlockChunks;
  const int64_t count = std::min(kBlockChunks, plan.count() - first);
  return backwards ? Block{first + count - 1, count, -1} : Block{first, count, 1};
}

SumSizes sum_sizes(const LinearProblem& problem, LinearPass pass) {
  const rf_linear_attention_args& x = problem.args;
  const int64_t matrix =
      pass == LinearPass::kQueryGradient ? x.value_dim * problem.width : x.features * problem.value_width;
  return {matrix, problem.width};
}

void begin_sums(const LinearProblem& problem, LinearPass pass, int64_t sequence, int64_t key_head,
                const BorderSums& to) {
  const int64_t count = sum_sizes(problem, pass).both();
  std::fill_n(to.sums, count, 0.0f);
  std::fill_n(to.lost, count, 0.0f);
  if (problem.args.state == nullptr) return;
  const double* state = state_of(problem.args, sequence, key_head);
  for_each_number(problem, [&](int64_t from, int64_t place) {
    to.sums[place] = static_cast<float>(state[from]);
    to.lost[place] = static_cast<float>(to.sums[place] - state[from]);
  });
}

void keep_state(const LinearProblem& problem, int64_t sequence, int64_t key_head, const BorderSums& sums) {
  const rf_linear_attention_args& x = problem.args;
  if (x.state == nullptr) return;
  double* state = state_of(x, sequence, key_head);
  for_each_number(problem, [&](int64_t to, int64_t place) {
    state[to] = static_cast<double>(sums.sums[place]) - sums.lost[place];
  });
  const Sequence of = sequence_of(x, sequence);
  if (x.key_exponents == nullptr || of.keys == 0) return;
  const int64_t last = (of.entry * x.keys + of.first_key + of.keys - 1) * x.key_heads + key_head;
  x.state_exponents[sequence * x.key_heads + key_head] = static_cast<const float*>(x.key_exponents)[last];
}

}  // namespace rf::core
