// The parts of the encoder's forward pass that searches need (encoder.h): cross-attention, and attention to keys and
// values that sequences share.
#include <cmath>
#include <cstring>

#include "encoder.h"
#include "parallel_for.h"
#include "rf/listed_attention.h"
#include "rf/rope.h"
#include "status.h"

namespace rf::engine {

AlignedMemory Encoder::project_source(const void* states, int64_t tokens) const {
  const int64_t hidden = config_.hidden_size, layer_bytes = 2 * tokens * hidden * bytes_of(dtype_);
  AlignedMemory memory = make_aligned(layer_bytes * std::ssize(blocks_));
  for (size_t i = 0; i < blocks_.size(); ++i)
    blocks_[i].cross_key_value(tokens, states, hidden, memory.get() + static_cast<int64_t>(i) * layer_bytes);
  return memory;
}

void Encoder::listed_attention(const void* q, int64_t q_stride, const char* keys, int64_t key_rows, int64_t kv_stride,
                               const KeyLists& lists, void* out) const {
  rf_listed_attention_args args = {};
  args.struct_size = sizeof args;
  args.dtype = dtype_;
  args.queries = std::ssize(lists.counts);
  args.keys = key_rows;
  args.heads = config_.num_attention_heads;
  args.head_dim = config_.head_dim();
  args.q = q;
  args.q_stride = q_stride;
  args.k = keys;
  args.v = keys + out_width() * bytes_of(dtype_);
  args.kv_stride = kv_stride;
  args.out = out;
  args.out_stride = out_width();
  args.rows = lists.rows.data();
  args.listed = std::ssize(lists.rows);
  args.begins = lists.begins.data();
  args.counts = lists.counts.data();
  args.scale = attention_scale();
  check_status(rf_listed_attention(&args));
}

void Encoder::cross_attention(int64_t layer, const EncoderInput& input, void* x, void* wide, void* narrow) const {
  const Block& block = blocks_[static_cast<size_t>(layer)];
  const CrossInput& cross = *input.cross;
  const int64_t hidden = config_.hidden_size, tokens = input.sequences.tokens;
  block.cross_query(tokens, x, hidden, wide);
  const auto* keys = static_cast<const char*>(cross.keys_values) + layer * cross.tokens * 2 * hidden * bytes_of(dtype_);
  listed_attention(wide, hidden, keys, cross.tokens, 2 * hidden, *cross.lists, narrow);
  block.cross_output(tokens, narrow, hidden, wide);
  block.cross_norm(dtype_, tokens, wide, x, x);
}

// A sink takes the share exp(sink) / (sum of exp(score) + exp(sink)) of a query's softmax, and adds nothing.
void Encoder::run_attention(int64_t layer, rf_attention_args& args, Workspace& work) const {
  const std::vector<float>& sinks = blocks_[config_.block.shared ? 0 : static_cast<size_t>(layer)].sinks;
  if (sinks.empty()) return check_status(rf_attention_forward(&args));
  work.log_sums.resize(static_cast<size_t>(args.batch * args.heads * args.queries));
  args.log_sum = work.log_sums.data();
  check_status(rf_attention_forward(&args));
  const int64_t rows = args.batch * args.queries;
  parallel_for(rows, rows > 64, [&](int64_t row) {
    const int64_t b = row / args.queries, t = row % args.queries;
    for (int64_t h = 0; h < args.heads; ++h) {
      const float log_sum = args.log_sum[(b * args.heads + h) * args.queries + t];
      const double kept = 1 / (1 + std::exp(static_cast<double>(sinks[static_cast<size_t>(h)]) - log_sum));
      const int64_t at = b * args.out_stride_b + t * args.out_stride_t + h * args.out_stride_h;
      scale_and_cap(dtype_, args.value_dim, kept, 0, static_cast<char*>(args.out) + at * bytes_of(dtype_));
    }
  });
}

bool Encoder::may_share_rows(int64_t tokens) const {
  if (linear_ || config_.block.score_cap > 0 || config_.block.sinks || position_->changes_within(tokens)) return false;
  const int64_t first = 0, cu_seqlens[] = {0, 1};
  PositionRows rows;
  position_->prepare({1, 1, cu_seqlens, &first}, rows);
  for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
    if (window(layer) > 0) return false;
    rf_attention_args args, none;
    std::memset(&args, 0, sizeof args);  // padding too
    std::memset(&none, 0, sizeof none);
    position_->set_terms(layer, rows, args);
    if (args.query.cos != args.key.cos || (args.value.cos != nullptr && args.value.cos != args.key.cos)) return false;
    args.query = args.key = args.value = {};
    args.layout = none.layout;
    if (std::memcmp(&args, &none, sizeof args) != 0) return false;
  }
  return true;
}

void* Encoder::extend_shared(const Extension& input, const EncoderInput& tokens, SharedRows& cache,
                             Workspace& work) const {
  const int64_t first_row = cache.count(), width = out_width(), element = bytes_of(dtype_);
  KeyLists& lists = work.lists;
  lists.clear();
  for (size_t i = 0; i < input.sequences.size(); ++i) {
    const int64_t added = input.offsets[i + 1] - input.offsets[i], before = cache.length(input.sequences[i]);
    cache.add_rows(input.sequences[i], added);
    for (int64_t t = 1; t <= added; ++t) {
      lists.begins.push_back(std::ssize(lists.rows));
      lists.counts.push_back(before + t);
    }
    const std::span<const int64_t> rows = cache.rows(input.sequences[i]);
    lists.rows.insert(lists.rows.end(), rows.begin(), rows.end());
  }
  cache.reserve();
  position_->prepare(tokens.sequences, work.rows);
  const auto attend_rows = [&](int64_t layer, const void* qkv, void* out) {
    // Queries, keys and values of the tokens of this call.
    auto* const parts = static_cast<char*>(const_cast<void*>(qkv));
    rf_attention_args terms = {};
    terms.head_dim = config_.head_dim();
    position_->set_terms(layer, work.rows, terms);
    const int64_t rotated = terms.query.cos == nullptr ? 0 : terms.value.cos == nullptr ? 2 : 3;
    if (rotated > 0) {
      rotate_rows(dtype_, terms, terms.query, input.tokens(), rotated * config_.num_attention_heads, qkv_width(),
                  parts);
    }
    parallel_for(input.tokens(), input.tokens() > 256, [&](int64_t t) {
      std::memcpy(cache.at(layer, first_row + t), parts + (t * 3 + 1) * width * element,
                  static_cast<size_t>(2 * width * element));
    });
    listed_attention(parts, 3 * width, cache.at(layer, 0), cache.count(), 2 * width, lists, out);
  };
  return forward(tokens, work, std::cref(attend_rows));
}

}  // namespace rf::engine
