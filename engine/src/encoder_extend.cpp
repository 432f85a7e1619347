// The forward pass of tokens that extend cached sequences (encoder.h): attention reads the keys and values of the
// cache, linear attention its sums.
#include <omp.h>

#include <algorithm>
#include <numeric>

#include "encoder.h"

namespace rf::engine {

namespace {

// The new tokens, which follow the cached ones.
EncoderInput new_tokens(const Extension& input, Workspace& work) {
  work.positions.resize(static_cast<size_t>(input.tokens()));
  for (size_t i = 0; i < input.sequences.size(); ++i) {
    const auto first = work.positions.begin() + input.offsets[i], end = work.positions.begin() + input.offsets[i + 1];
    std::iota(first, end, input.length(i));
  }
  EncoderInput tokens;
  tokens.sequences = {input.tokens(), std::ssize(input.sequences), input.offsets.data(), work.positions.data()};
  tokens.ids = input.ids;
  return tokens;
}

// In a prefix language model, the tokens of the prompt have type 0, and later tokens type 1.
void set_types(const Extension& input, Workspace& work, EncoderInput& tokens) {
  work.types.resize(static_cast<size_t>(input.tokens()));
  for (size_t i = 0; i < input.sequences.size(); ++i) {
    const int32_t type = input.length(i) == 0 ? 0 : 1;
    std::fill(work.types.begin() + input.offsets[i], work.types.begin() + input.offsets[i + 1], type);
  }
  tokens.types = work.types.data();
}

std::span<Workspace::Group> group(const Extension& input, Workspace& work) {
  work.used_groups = 0;
  for (size_t i = 0; i < input.sequences.size(); ++i) {
    const int64_t tokens = input.offsets[i + 1] - input.offsets[i], before = input.length(i);
    Workspace::Group* last = work.used_groups == 0 ? nullptr : &work.groups[work.used_groups - 1];
    if (last != nullptr && last->cache == &input.cache(i) && last->tokens == tokens && last->keys == before + tokens &&
        input.sequences[i - 1] + 1 == input.sequences[i]) {
      ++last->count;
      continue;
    }
    if (work.groups.size() == work.used_groups) work.groups.emplace_back();
    Workspace::Group& next = work.groups[work.used_groups++];
    next.first = static_cast<int64_t>(i);
    next.count = 1;
    next.cache = &input.cache(i);
    next.tokens = tokens;
    next.keys = before + tokens;
  }
  return std::span(work.groups).first(work.used_groups);
}

// Whether nothing but rotations depends on positions or heads.
bool has_only_rotations(const rf_attention_args& args) {
#define RF_TABLE_OF(name, symbol, width) args.name.rows,
#define RF_NUMBERS_OF(name, symbol, width) args.name,
#define RF_PAIR_OF(query_name, query_symbol, key_name, key_symbol) args.query_name,
#define RF_SCORES_OF(name, symbol, rows) args.name.numbers,
  const void* const others[] = {
      RF_ATTENTION_TERMS(RF_NO_TERM, RF_TABLE_OF, RF_NUMBERS_OF, RF_PAIR_OF, RF_SCORES_OF) args.prefix, args.mask};
#undef RF_TABLE_OF
#undef RF_NUMBERS_OF
#undef RF_PAIR_OF
#undef RF_SCORES_OF
  const bool by_heads = args.query_rotation_heads > 1 || args.key_rotation_heads > 1 || args.value_rotation_heads > 1;
  return !by_heads && std::ranges::all_of(others, [](const void* other) { return other == nullptr; });
}

// One query of each head becomes a query of its key head, whose keys are then loaded and rotated once. The bits of a
// query do not depend on the other queries.
void join_heads(rf_attention_args& args, Workspace& work) {
  const int64_t joined = args.heads / args.key_heads;
  const bool sees_all = (args.window & RF_WINDOW_LEFT) == 0 || args.window_left >= args.keys - 1;
  const bool fills_threads = args.batch * args.key_heads >= omp_get_max_threads();
  if (args.queries != 1 || joined == 1 || !sees_all || !fills_threads || !has_only_rotations(args)) return;
  args.queries = joined;
  args.heads = args.key_heads;
  args.q_stride_t = args.q_stride_h;
  args.q_stride_h *= joined;
  args.out_stride_t = args.out_stride_h;
  args.out_stride_h *= joined;
  if (args.window != 0) {  // still one, as windows decide the tiles of keys
    args.window = RF_WINDOW_RIGHT;
    args.window_left = 0;
    args.window_right = joined - 1;
  }
  work.joined_positions.assign(static_cast<size_t>(joined), *args.query_positions);
  args.query_positions = work.joined_positions.data();
  if (args.query.cos == nullptr) return;
  const int64_t pairs = args.query.pairs;
  work.joined_rotation.resize(static_cast<size_t>(2 * joined * pairs));
  float* row = work.joined_rotation.data();
  for (const void** const part : {&args.query.cos, &args.query.sin}) {
    const auto* const from = static_cast<const float*>(*part);
    *part = row;
    for (int64_t i = 0; i < joined; ++i) row = std::copy_n(from, pairs, row);
  }
}

}  // namespace

void Encoder::attend(int64_t layer, const Extension& input, const Workspace::Group& group, Workspace& work,
                     const void* qkv, void* out) const {
  auto& cache = static_cast<KeyValueCache&>(*group.cache);
  const int64_t row_bytes = qkv_width() * bytes_of(dtype_), first = input.offsets[group.first];
  rf_attention_args args = attention_args(layer, static_cast<const char*>(qkv) + first * row_bytes,
                                          static_cast<char*>(out) + first * out_width() * bytes_of(dtype_));
  for (int64_t i = 0; i < group.count; ++i) {
    const int64_t offset = i * group.tokens * row_bytes;
    cache.store(layer, input.sequences[group.first + i], group.tokens, static_cast<const char*>(args.k) + offset,
                static_cast<const char*>(args.v) + offset, row_bytes);
  }
  const int64_t sequence = input.sequences[group.first];
  args.batch = group.count;
  args.queries = group.tokens;
  args.keys = group.keys;
  args.q_stride_b = args.q_stride_t * group.tokens;
  args.out_stride_b = args.out_stride_t * group.tokens;
  args.k = cache.keys(layer, sequence);
  args.v = cache.values(layer, sequence);
  args.k_stride_b = args.v_stride_b = cache.sequence_stride();
  args.k_stride_h = args.v_stride_h = cache.head_stride();
  args.k_stride_t = args.v_stride_t = cache.row();
  args.cache_type = cache.type();
  const int64_t before = group.keys - group.tokens;
  args.query_positions = work.counting.data() + before;
  args.key_positions = work.counting.data();
  if (config_.prefix_lm && before == 0) {  // a prompt is a prefix, visible to all later tokens
    work.prefixes.assign(static_cast<size_t>(group.count), group.tokens);
    args.prefix = work.prefixes.data();
  }
  position_->set_terms(layer, group.rows, args);
  // Queries are the last of the keys.
  args.query = rotation_from(args.query, before);
  if (!config_.block.sinks) join_heads(args, work);
  run_attention(layer, args, work);
}

void* Encoder::extend_rows(const Extension& input, const EncoderInput& tokens, Workspace& work) const {
  const std::span<Workspace::Group> groups = group(input, work);
  for (Workspace::Group& each : groups) {
    const auto known = std::ssize(work.counting);
    if (known < each.keys) {
      work.counting.resize(static_cast<size_t>(each.keys));
      std::iota(work.counting.begin() + known, work.counting.end(), known);
    }
    const int64_t cu_seqlens[] = {0, each.keys};
    position_->prepare({each.keys, 1, cu_seqlens, work.counting.data()}, each.rows);
  }
  const auto attend_groups = [&](int64_t layer, const void* qkv, void* out) {
    for (const Workspace::Group& each : groups) attend(layer, input, each, work, qkv, out);
  };
  return forward(tokens, work, std::cref(attend_groups));
}

void* Encoder::extend_sums(const Extension& input, const EncoderInput& tokens, LinearStates& states,
                           Workspace& work) const {
  for (const int64_t sequence : input.sequences) {
    if (states.length(sequence) == 0) states.clear(sequence);
  }
  position_->prepare(tokens.sequences, work.rows);
  const GrowingSequences growing{states, input.sequences};
  const auto attend_sums = [&](int64_t layer, const void* qkv, void* out) {
    (*linear_)(layer, packed_args(layer, tokens, work.rows, qkv, out), work.features, &growing);
  };
  try {
    return forward(tokens, work, std::cref(attend_sums));
  } catch (...) {
    for (const int64_t sequence : input.sequences) states.truncate(sequence, 0);
    throw;
  }
}

void* Encoder::extend(const Extension& input, Workspace& work) const {
  EncoderInput tokens = new_tokens(input, work);
  tokens.cross = input.cross;
  if (config_.prefix_lm) set_types(input, work, tokens);
  auto* const shared = dynamic_cast<SharedRows*>(&input.cache(0));
  void* hidden = linear_             ? extend_sums(input, tokens, static_cast<LinearStates&>(input.cache(0)), work)
                 : shared != nullptr ? extend_shared(input, tokens, *shared, work)
                                     : extend_rows(input, tokens, work);
  for (size_t i = 0; i < input.sequences.size(); ++i)
    input.cache(i).append(input.sequences[i], {input.ids + input.offsets[i], input.ids + input.offsets[i + 1]});
  return hidden;
}

}  // namespace rf::engine
