// The sums that a pass of linear attention keeps of earlier chunks, and their decay when the exponents of keys rise.
// M_i: the exponent of the chunk's key i, M0 of the key before the chunk, M1 of its last key.
//
//   kForward, kQueryGradient: sums divided by e^M0 before the chunk and by e^M1 behind it; kKeyGradient: the reverse
#if defined(RF_CORE_LINEAR_ATTENTION_RUNNING_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RF_CORE_LINEAR_ATTENTION_RUNNING_SUMS_INL_H_
#undef RF_CORE_LINEAR_ATTENTION_RUNNING_SUMS_INL_H_
#else
#define RF_CORE_LINEAR_ATTENTION_RUNNING_SUMS_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "common/arena.h"
#include "common/rows-inl.h"
#include "hwy/highway.h"
#include "linear_attention/problem.h"

HWY_BEFORE_NAMESPACE();
namespace rf::core {
namespace HWY_NAMESPACE {

// Lower exponents, -inf too, count as this one, so that differences are finite; e^-(a difference with it) is 0.
inline constexpr float kLowestExponent = -1e30f;

inline float decay_between(float from, float to) { return std::exp(-std::abs(to - from)); }

// Exponents of a chunk's keys and their factors, which are at most 1.
struct Decays {
  bool any = false;               // false: all factors are 1
  float before = 0, behind = 0;   // M0 and M1
  float over = 1;                 // e^(M0 - M1)
  float* exponents;               // M, [kChunk]
  float *from_first, *from_last;  // e^(M0 - M_i), e^(M_i - M1)
  float* step;                    // e^(M_(i-1) - M_i), of the first key 1

  explicit Decays(Arena& arena)
      : exponents(arena.take<float>(kChunk)),
        from_first(arena.take<float>(kChunk)),
        from_last(arena.take<float>(kChunk)),
        step(arena.take<float>(kChunk)) {}

  void load(const rf_linear_attention_args& x, const Sequence& sequence, int64_t key_head, const Chunk& chunk) {
    any = false;
    if (x.key_exponents == nullptr) return;
    const auto of_key = [&](int64_t n) {
      const auto* all = static_cast<const float*>(x.key_exponents);
      return std::max(all[(sequence.entry * x.keys + n) * x.key_heads + key_head], kLowestExponent);
    };
    const auto at_begin = [&] {
      if (x.state == nullptr) return sequence.keys > 0 ? of_key(sequence.first_key) : kLowestExponent;
      const double earlier = x.state_exponents[sequence.number * x.key_heads + key_head];
      return std::max(static_cast<float>(earlier), kLowestExponent);
    };
    const bool first = chunk.keys == 0 || chunk.first_key == sequence.first_key;
    before = behind = first ? at_begin() : of_key(chunk.first_key - 1);
    if (chunk.keys == 0) return;
    for (int64_t i = 0; i < chunk.keys; ++i) exponents[i] = of_key(chunk.first_key + i);
    behind = exponents[chunk.keys - 1];
    any = before != behind;
    over = decay_between(before, behind);
    for (int64_t i = 0; any && i < chunk.keys; ++i) {
      from_first[i] = decay_between(before, exponents[i]);
      from_last[i] = decay_between(exponents[i], behind);
      step[i] = i == 0 ? 1 : decay_between(exponents[i - 1], exponents[i]);
    }
  }
};

// A sum over chunks, within blocks and over blocks, and the rounding errors of both (Kahan 1965): a true sum is near
// sums - lost. Factors come from Decays, 1 without them.
struct BlockedSum {
  float *before, *before_lost;  // of the blocks behind
  float *block, *block_lost;    // of the block's chunks so far
  float* added;                 // input of the next add()
  float* total;                 // of both, which products read
  int64_t count;

  // `floats` numbers, from number `first` on, of the sums over all chunks and of the block's sums.
  BlockedSum(const BorderSums& all, const BorderSums& own, int64_t first, int64_t floats, Arena& arena)
      : before(all.sums + first),
        before_lost(all.lost + first),
        block(own.sums + first),
        block_lost(own.lost + first),
        added(arena.take<float>(floats)),
        total(arena.take<float>(floats)),
        count(floats) {}

  void begin_block() const {
    const FloatTag d;
    std::fill_n(block, count, 0.0f);
    std::fill_n(block_lost, count, 0.0f);
    for (int64_t i = 0; i < count; i += kLanes) {
      hn::StoreU(hn::Sub(hn::LoadU(d, before + i), hn::LoadU(d, before_lost + i)), d, total + i);
    }
  }
  // over: of the chunk. over_block: of the block up to the chunk's end.
  HWY_NOINLINE void add(float over, float over_block) const {
    const FloatTag d;
    const auto factor = hn::Set(d, over), factor_of_before = hn::Set(d, over_block);
    for (int64_t i = 0; i < count; i += kLanes) {
      const auto sum = hn::Mul(hn::LoadU(d, block + i), factor);
      const auto rest = hn::Sub(hn::LoadU(d, added + i), hn::Mul(hn::LoadU(d, block_lost + i), factor));
      const auto after = hn::Add(sum, rest), lost = hn::Sub(hn::Sub(after, sum), rest);
      hn::StoreU(lost, d, block_lost + i);
      hn::StoreU(after, d, block + i);
      const auto all_lost = hn::MulAdd(hn::LoadU(d, before_lost + i), factor_of_before, lost);
      const auto rounded = hn::Sub(after, all_lost);
      hn::StoreU(hn::MulAdd(hn::LoadU(d, before + i), factor_of_before, rounded), d, total + i);
    }
  }
};

inline HWY_NOINLINE void add_sums(const BorderSums& block, float over, int64_t count, const BorderSums& to) {
  const FloatTag d;
  const auto factor = hn::Set(d, over);
  for (int64_t i = 0; i < count; i += kLanes) {
    const auto sum = hn::Mul(hn::LoadU(d, to.sums + i), factor);
    const auto lost = hn::MulAdd(hn::LoadU(d, to.lost + i), factor, hn::LoadU(d, block.lost + i));
    const auto rest = hn::Sub(hn::LoadU(d, block.sums + i), lost), after = hn::Add(sum, rest);
    hn::StoreU(hn::Sub(hn::Sub(after, sum), rest), d, to.lost + i);
    hn::StoreU(after, d, to.sums + i);
  }
}

// Matrix and row of a pass.
struct PassSums {
  PassSums(const LinearProblem& linear_problem, LinearPass linear_pass, int64_t sequence, int64_t head, Arena& arena)
      : problem(linear_problem),
        pass(linear_pass),
        of(sequence_of(problem.args, sequence)),
        key_head(head),
        sizes(sum_sizes(problem, pass)),
        before{arena.take<float>(sizes.both()), arena.take<float>(sizes.both())},
        block{arena.take<float>(sizes.both()), arena.take<float>(sizes.both())},
        matrix(before, block, 0, sizes.matrix, arena),
        row(before, block, sizes.matrix, sizes.row, arena),
        decays(arena) {}

  void begin(const LinearTask& task) const {
    if (task.own != nullptr) {
      std::fill_n(before.sums, sizes.both(), 0.0f);
      std::fill_n(before.lost, sizes.both(), 0.0f);
    } else if (task.before == nullptr) {
      begin_sums(problem, pass, task.sequence, key_head, before);
    } else {
      std::copy_n(task.before->sums, sizes.both(), before.sums);
      std::copy_n(task.before->lost, sizes.both(), before.lost);
    }
  }
  bool backwards() const { return pass == LinearPass::kKeyGradient; }
  void load(const Chunk& chunk) {
    decays.load(problem.args, of, key_head, chunk);
    if (is_first) block.entering = backwards() ? decays.behind : decays.before;
    block.leaving = backwards() ? decays.before : decays.behind;
    is_first = false;
  }
  void begin_block() {
    matrix.begin_block();
    row.begin_block();
    is_first = true;
  }
  // `added` of matrix and row.
  void add() const {
    const float over = decays.any ? decays.over : 1, over_block = decay_between(block.entering, block.leaving);
    matrix.add(over, over_block);
    row.add(over, over_block);
  }
  void end_block(const LinearTask& task) const {
    const float over_block = decay_between(block.entering, block.leaving);
    if (task.own == nullptr) return add_sums(block, over_block, sizes.both(), before);
    std::copy_n(block.sums, sizes.both(), task.own->sums);
    std::copy_n(block.lost, sizes.both(), task.own->lost);
    task.own->entering = block.entering;
    task.own->leaving = block.leaving;
  }

  const LinearProblem& problem;
  LinearPass pass;
  Sequence of;
  int64_t key_head;
  SumSizes sizes;
  BorderSums before, block;
  BlockedSum matrix, row;
  Decays decays;
  bool is_first = true;  // chunk of its block
};

// prefix[i] = before + rows 0..i, where the chunk's factors decay everything before a row; NULL: not wanted. `all`: all
// rows.
inline HWY_NOINLINE void sum_prefixes(const float* before, const float* rows, int64_t count, int64_t width,
                                      const Decays& decays, float* all, float* prefix) {
  const FloatTag d;
  for (int64_t i = 0; i < width; i += kLanes) {
    const auto start = hn::LoadU(d, before + i);
    auto sum = hn::Zero(d);
    for (int64_t r = 0; r < count; ++r) {
      const auto row = hn::LoadU(d, rows + r * width + i);
      sum = decays.any ? hn::MulAdd(sum, hn::Set(d, decays.step[r]), row) : hn::Add(sum, row);
      if (prefix == nullptr) continue;
      const auto shrunk = decays.any ? hn::Mul(start, hn::Set(d, decays.from_first[r])) : start;
      hn::StoreU(hn::Add(shrunk, sum), d, prefix + r * width + i);
    }
    hn::StoreU(sum, d, all + i);
  }
}

// The chunks of a task in their order: pass.take(chunk, the next one, is it answered). The sums of all are then in
// pass.sums.before.
template <class Pass>
void walk(const LinearTask& task, Pass& pass) {
  const ChunkPlan plan(pass.problem.args.direction, pass.sums.of);
  pass.sums.begin(task);
  for (int64_t b = task.first_block; b < task.end_block; ++b) {
    const Block block = block_of(plan, task.pass, b);
    pass.sums.begin_block();
    for (int64_t i = 0; i < block.count; ++i) {
      const int64_t index = block.first + i * block.step, next = index + block.step;
      const bool is_last = next < 0 || next >= plan.count();
      pass.take(plan.at(index), is_last ? Chunk{} : plan.at(next), task.own == nullptr);
    }
    pass.sums.end_block(task);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace rf::core
HWY_AFTER_NAMESPACE();

#endif
