// Linear attention (rf/nn/linear_attention.h): selects a kernel, processes packed rows sequence by sequence, and
// implements the layer with its random vectors.
#include "rf/nn/linear_attention.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <map>
#include <vector>

#include "attention_state.h"
#include "layer_parameters.h"
#include "linear_attention_paths.h"
#include "rf/io/error.h"
#include "rf/nn/devices.h"
#include "rf/ops/kernels.h"

namespace rf::nn {

namespace {

// Inputs for the selection of a kernel.
struct Facts {
  at::Device device;
  at::ScalarType dtype;
  bool rotates_by_head_after_map = false, trains_rotation_after_map = false, trains_beside_state = false;
};

bool is_trained(std::initializer_list<at::Tensor> tensors) {
  return at::GradMode::is_enabled() && std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& x) {
           return x.defined() && x.requires_grad();
         });
}

Facts facts_of(const LinearProblem& problem) {
  Facts facts{problem.q_BTHD.device(), problem.q_BTHD.scalar_type()};
  const ops::Terms& terms = problem.terms;
  const bool trains_rotation = is_trained({terms.query.cos, terms.query.sin, terms.key.cos, terms.key.sin});
  const bool after_map = problem.config.rope_site == RopeSite::kAfterMap;
  const auto by_head = [](const ops::Rotation& rotation) { return rotation.defined() && rotation.cos.dim() == 4; };
  facts.rotates_by_head_after_map = after_map && (by_head(terms.query) || by_head(terms.key));
  facts.trains_rotation_after_map = trains_rotation && after_map;
  if (const LinearAttentionState* state = problem.call.state) {
    facts.trains_beside_state = trains_rotation || is_trained({problem.q_BTHD, problem.k_BSHD, problem.v_BSHD,
                                                               problem.projection_FD, state->sum_BHFD});
  }
  return facts;
}

// The end of the message "kernel ... needs ..." for a call that no kernel supports; empty if they do.
std::string missing_for_kernels(const Facts& facts) {
  if (facts.rotates_by_head_after_map) return "rotations after the map that all heads share, got rows for each head";
  if (facts.trains_rotation_after_map) return "rotations after the map that are not trained, got trained ones";
  if (facts.trains_beside_state) return "tensors that do not require grad with a state, got tensors that do";
  return {};
}

std::string missing_for_fused(const Facts& facts) {
  if (facts.dtype == at::kDouble) return "float32, bfloat16 or float16, got Double";
  if (ops::reference_is_asked_for()) return "RF_KERNEL not to be ref, got RF_KERNEL=ref";
  if (const std::string missing = ops::missing_on(facts.device); !missing.empty()) return missing;
  return missing_for_kernels(facts);
}

std::string missing_for_ref(const Facts& facts) {
  if (!facts.device.is_cpu()) return fmt::format("tensors on the CPU, got {}", facts.device.str());
  return missing_for_kernels(facts);
}

// With RF_KERNEL=ref, "auto" means the loops.
Kernel choose(Kernel wanted, const Facts& facts) {
  if (wanted == Kernel::kExplicit) return wanted;
  if (wanted == Kernel::kAuto) {
    if (missing_for_fused(facts).empty()) return Kernel::kFused;
    return ops::reference_is_asked_for() && missing_for_ref(facts).empty() ? Kernel::kRef : Kernel::kExplicit;
  }
  const std::string missing = wanted == Kernel::kFused ? missing_for_fused(facts) : missing_for_ref(facts);
  if (!missing.empty()) fail("linear_attention", "kernel {} needs {}", name_of(wanted), missing);
  return wanted;
}

at::ScalarType dtype_of_sums(Kernel kernel) { return kernel == Kernel::kRef ? at::kDouble : at::kFloat; }

// One sequence per row.
at::Tensor attend(const LinearProblem& problem, Kernel kernel) {
  if (kernel == Kernel::kExplicit) return explicit_linear_attention(problem);
  return kernel_linear_attention(problem, dtype_of_sums(kernel));
}

// The tokens of each sequence, as indices across all rows of a batch, grouped by sequence.
struct Grouping {
  std::vector<int64_t> queries, keys;
  SequenceLengths lengths;
};
Grouping group(const at::Tensor& sequence_ids_BS, int64_t queries) {
  const int64_t keys = sequence_ids_BS.size(1), skipped = keys - queries;
  const auto ids = sequence_ids_BS.accessor<int64_t, 2>();
  Grouping grouping;
  for (int64_t row = 0; row < sequence_ids_BS.size(0); ++row) {
    std::map<int64_t, std::vector<int64_t>> members;
    std::vector<int64_t>* own = nullptr;
    for (int64_t key = 0; key < keys; ++key) {
      const int64_t id = ids[row][key];
      if (key == 0 || id != ids[row][key - 1]) own = id < 0 ? nullptr : &members[id];
      if (own != nullptr) own->push_back(key);
    }
    for (const auto& [id, tokens] : members) {
      const size_t before = grouping.queries.size();
      for (const int64_t token : tokens) {
        grouping.keys.push_back(row * keys + token);
        if (token >= skipped) grouping.queries.push_back(row * queries + token - skipped);
      }
      grouping.lengths.keys.push_back(std::ssize(tokens));
      grouping.lengths.queries.push_back(static_cast<int64_t>(grouping.queries.size() - before));
    }
  }
  return grouping;
}

bool all_in_order(const std::vector<int64_t>& tokens, int64_t count) {
  if (static_cast<int64_t>(tokens.size()) != count) return false;
  for (int64_t i = 0; i < count; ++i) {
    if (tokens[static_cast<size_t>(i)] != i) return false;
  }
  return true;
}

// The given tokens of all rows as one row, [1,tokens,..]; undefined for an undefined x.
at::Tensor gathered(const at::Tensor& x, int64_t batch, const std::vector<int64_t>& tokens) {
  if (!x.defined()) return x;
  std::vector<int64_t> shape = x.sizes().vec();
  shape[0] = batch;
  const at::Tensor all = x.expand(shape).flatten(0, 1);
  const bool as_given = all_in_order(tokens, all.size(0));
  if (as_given) return all.unsqueeze(0);
  return all.index_select(0, on_device(at::tensor(tokens, at::kLong), x.device())).unsqueeze(0);
}

// The problem for a row of concatenated sequences.
LinearProblem gathered(const LinearProblem& all, const Grouping& grouping) {
  const int64_t batch = all.q_BTHD.size(0);
  const auto of_queries = [&](const at::Tensor& x) { return gathered(x, batch, grouping.queries); };
  const auto of_keys = [&](const at::Tensor& x) { return gathered(x, batch, grouping.keys); };
  LinearProblem own{
      of_queries(all.q_BTHD),           of_keys(all.k_BSHD), of_keys(all.v_BSHD), {}, all.config, all.projection_FD,
      {.direction = all.call.direction}};
  own.terms.query = {of_queries(all.terms.query.cos), of_queries(all.terms.query.sin)};
  own.terms.key = {of_keys(all.terms.key.cos), of_keys(all.terms.key.sin)};
  own.terms.layout = all.terms.layout;
  own.terms.scale = all.terms.scale;
  own.call.key_mask_BS = of_keys(all.call.key_mask_BS);
  return own;
}

at::Tensor attend_apart(const LinearProblem& row, const SequenceLengths& lengths) {
  std::vector<at::Tensor> outputs{row.q_BTHD.new_zeros({1, 0, row.q_BTHD.size(2), row.v_BSHD.size(3)})};
  for (const LinearProblem& own : split_sequences(row, lengths)) outputs.push_back(explicit_linear_attention(own));
  return at::cat(outputs, 1);
}

// For rows with several sequences, whose tokens need not be neighbours.
at::Tensor attend_packed(const LinearProblem& all, Kernel kernel) {
  const int64_t batch = all.q_BTHD.size(0), queries = all.q_BTHD.size(1);
  const at::Tensor sequence_ids_BS = on_cpu(all.call.sequence_ids_BS).to(at::kLong).expand({batch, all.k_BSHD.size(1)});
  const Grouping grouping = group(sequence_ids_BS, queries);
  const LinearProblem row = gathered(all, grouping);
  const at::Tensor out_1THD = kernel == Kernel::kExplicit
                                  ? attend_apart(row, grouping.lengths)
                                  : kernel_linear_attention(row, dtype_of_sums(kernel), &grouping.lengths);
  if (all_in_order(grouping.queries, batch * queries)) return out_1THD.squeeze(0).unflatten(0, {batch, queries});
  // Row 0 is for padding.
  std::vector<int64_t> place(static_cast<size_t>(batch * queries), 0);
  for (size_t i = 0; i < grouping.queries.size(); ++i) {
    place[static_cast<size_t>(grouping.queries[i])] = static_cast<int64_t>(i) + 1;
  }
  const at::Tensor rows = out_1THD.squeeze(0);
  const at::Tensor padded = at::cat({rows.new_zeros({1, rows.size(1), rows.size(2)}), rows});
  return padded.index_select(0, on_device(at::tensor(place, at::kLong), rows.device())).unflatten(0, {batch, queries});
}

}  // namespace

std::vector<LinearProblem> split_sequences(const LinearProblem& row, const SequenceLengths& lengths) {
  constexpr size_t kOfQueries = 3;
  const auto tensors_of = [](auto& x) {
    return std::array{&x.q_BTHD, &x.terms.query.cos, &x.terms.query.sin, &x.k_BSHD,
                      &x.v_BSHD, &x.terms.key.cos,   &x.terms.key.sin,   &x.call.key_mask_BS};
  };
  std::vector<LinearProblem> sequences(lengths.keys.size(), row);
  const auto all = tensors_of(row);
  for (size_t t = 0; t < all.size(); ++t) {
    if (!all[t]->defined()) continue;
    const std::vector<at::Tensor> parts = all[t]->split_with_sizes(t < kOfQueries ? lengths.queries : lengths.keys, 1);
    for (size_t i = 0; i < parts.size(); ++i) *tensors_of(sequences[i])[t] = parts[i];
  }
  return sequences;
}

LinearProblem before_map(const LinearProblem& given, at::ScalarType dtype) {
  LinearProblem problem = given;
  problem.q_BTHD = given.q_BTHD.to(dtype);
  problem.k_BSHD = given.k_BSHD.to(dtype);
  problem.v_BSHD = given.v_BSHD.to(dtype);
  if (given.projection_FD.defined()) problem.projection_FD = given.projection_FD.to(dtype);
  if (given.config.rope_site != RopeSite::kBeforeMap) return problem;
  check_rotated_size(problem.q_BTHD, given.terms.query);
  check_rotated_size(problem.k_BSHD, given.terms.key);
  problem.q_BTHD = rotated(problem.q_BTHD, given.terms.query, given.terms.layout);
  problem.k_BSHD = rotated(problem.k_BSHD, given.terms.key, given.terms.layout);
  return problem;
}

at::Tensor for_query_heads(const at::Tensor& x_BSHD, int64_t heads) {
  const int64_t group = heads / x_BSHD.size(2);
  return group == 1 ? x_BSHD : x_BSHD.repeat_interleave(group, 2);
}

Kernel automatic_linear_kernel(at::ScalarType dtype) { return choose(Kernel::kAuto, {at::kCPU, dtype}); }

at::Tensor linear_attention(const at::Tensor& q_BTHD, const at::Tensor& k_BSHD, const at::Tensor& v_BSHD,
                            const ops::Terms& terms, const LinearAttentionConfig& config, const at::Tensor& projection,
                            const LinearAttentionCall& call) {
  const LinearProblem problem{q_BTHD, k_BSHD, v_BSHD, terms, config, projection, call};
  check_linear_attention(problem);
  const Kernel kernel = choose(call.kernel, facts_of(problem));
  const NoAutocast no_autocast;  // long 16-bit sums stall
  const bool packed = call.sequence_ids_BS.defined() && q_BTHD.size(0) > 0;
  return packed ? attend_packed(problem, kernel) : attend(problem, kernel);
}

LinearAttention::LinearAttention(const LinearAttentionConfig& config, int64_t head_dim, int64_t layer)
    : config_(config), layer_(layer) {
  if (!config_.draws()) return;
  const FeatureDraw first{config_.orthogonal, config_.orthogonal_scaling, config_.seed, layer_, 0};
  projection_ =
      register_buffer("projection", draw_features(num_features(config_, head_dim), head_dim, first).to(at::kFloat));
  redraws_ = register_buffer("redraws", at::zeros({1}, at::kLong));
  calls_ = register_buffer("calls", at::zeros({1}, at::kLong));
}

void LinearAttention::count_call() {
  const int64_t calls = config_.redraw_every > 0 ? calls_->item<int64_t>() : 0;
  if (calls > 0 && calls % config_.redraw_every == 0) {
    redraws_->add_(1);
    const FeatureDraw next{config_.orthogonal, config_.orthogonal_scaling, config_.seed, layer_,
                           redraws_->item<int64_t>()};
    projection_->copy_(draw_features(projection_->size(0), projection_->size(1), next));
  }
  calls_->add_(1);
}

at::Tensor LinearAttention::forward(const at::Tensor& q_BTHD, const at::Tensor& k_BSHD, const at::Tensor& v_BSHD,
                                    const Terms& terms, const LinearAttentionCall& call) {
  if (config_.draws() && is_training()) count_call();
  // A copy: the next redraw overwrites the vectors, and the backward of this call may come after it.
  const at::Tensor vectors = config_.draws() ? projection_->clone() : at::Tensor();
  return linear_attention(q_BTHD, k_BSHD, v_BSHD, terms, config_, vectors, call);
}

}  // namespace rf::nn
