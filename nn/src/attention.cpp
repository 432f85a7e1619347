// Which path computes attention (rf/nn/attention.h), and packed sequences: in one call of a kernel, or one after the
// other.
#include "rf/nn/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/where.h>
#include <c10/util/Exception.h>
#include <fmt/ranges.h>

#include <cmath>
#include <utility>

#include "attention_paths.h"
#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "rf/ops/attention.h"
#include "rf/ops/ops.h"
#include "rf/status.h"

namespace rf::nn {

namespace {

bool is_trained(const Rotation& rotation) {
  return at::GradMode::is_enabled() && rotation.defined() &&
         (rotation.cos.requires_grad() || rotation.sin.requires_grad());
}

// Autocast casts the inputs of products only; a kernel with products inside gets the dtype that they would get.
at::ScalarType product_dtype(const at::Tensor& q_BTHD) {
  const bool is_cast = at::autocast::is_autocast_enabled(at::kCPU) && q_BTHD.scalar_type() != at::kDouble;
  return is_cast ? at::autocast::get_autocast_dtype(at::kCPU) : q_BTHD.scalar_type();
}

// The end of the message "kernel fused needs ..." for a call that the fused kernel cannot compute; empty: it can.
std::string missing_for_fused(at::Device device, at::ScalarType dtype, const Terms& terms) {
  if (!device.is_cpu()) return fmt::format("tensors on the CPU, got {}", device.str());
  if (dtype != at::kFloat && dtype != at::kBFloat16 && dtype != at::kHalf) {
    return fmt::format("float32, bfloat16 or float16, got {}", toString(dtype));
  }
  if (terms.gate.defined()) return "terms without a gate, got one";
  if (is_trained(terms.query) && terms.key_table.defined()) {
    return "a query rotation that is not trained where terms have a key_table, got a trained one";
  }
  if (is_trained(terms.key) && terms.query_table.defined()) {
    return "a key rotation that is not trained where terms have a query_table, got a trained one";
  }
  if (loops_are_asked_for()) return "RF_KERNEL not to be ref, got RF_KERNEL=ref";
  return {};
}

// With RF_KERNEL=ref, "auto" means the loops, which have no dropout.
Kernel choose(Kernel wanted, at::Device device, at::ScalarType dtype, const Terms& terms,
              const AttentionDropout& dropout) {
  if (wanted != Kernel::kAuto && wanted != Kernel::kFused) return wanted;
  const std::string missing = missing_for_fused(device, dtype, terms);
  if (missing.empty()) return Kernel::kFused;
  if (wanted == Kernel::kFused) fail("attention", "kernel fused needs {}", missing);
  return loops_are_asked_for() && dropout.p == 0 ? Kernel::kRef : Kernel::kExplicit;
}

// The arguments of core's kernels: packed rows become one row of sequences; all others stay as they are.
struct KernelCall {
  KernelCall(const at::Tensor& q_BTHD, const at::Tensor& k_BSHD, const at::Tensor& v_BSHD, Terms given,
             AttentionContext::State& state);

  // The kernel's result in the shape of the queries.
  at::Tensor result(const at::Tensor& out_1NHD) const {
    return packed.defined() ? out_1NHD.squeeze(0).unflatten(0, {batch, out_1NHD.size(1) / batch}) : out_1NHD;
  }

  int64_t batch;
  at::Tensor q, k, v;
  Terms terms;
  at::Tensor query_ids, key_ids, attend;
  PackedSequences packed;
};

KernelCall::KernelCall(const at::Tensor& q_BTHD, const at::Tensor& k_BSHD, const at::Tensor& v_BSHD, Terms given,
                       AttentionContext::State& state)
    : batch(q_BTHD.size(0)), q(q_BTHD), k(k_BSHD), v(v_BSHD), terms(std::move(given)) {
  if (!state.packing()) {
    query_ids = state.positions.query.ids, key_ids = state.positions.key.ids, attend = state.attend();
    return;
  }
  packed = state.packing()->ends, query_ids = state.packing()->query_ids, key_ids = state.packing()->key_ids;
  for (at::Tensor* x : {&q, &k, &v, &terms.query.cos, &terms.query.sin, &terms.key.cos, &terms.key.sin,
                        &terms.value.cos, &terms.value.sin}) {
    *x = as_one_row(*x, batch);
  }
}

// Trained rotations are applied before the kernel, which has no gradients for them.
at::Tensor fused_attention(const at::Tensor& q_BTHD, const at::Tensor& k_BSHD, const at::Tensor& v_BSHD, Terms terms,
                           AttentionContext::State& state, const AttentionDropout& dropout) {
  const at::ScalarType dtype = product_dtype(q_BTHD);
  const auto ready = [&](const at::Tensor& x, Rotation& rotation) {
    return is_trained(rotation) ? rotated(x, std::exchange(rotation, {}), terms.layout).to(dtype) : x.to(dtype);
  };
  const at::Tensor q = ready(q_BTHD, terms.query), k = ready(k_BSHD, terms.key), v = ready(v_BSHD, terms.value);
  const KernelCall call(q, k, v, std::move(terms), state);
  ops::ProbabilityDropout drop;
  if (dropout.p > 0) {
    drop = {.p = dropout.p, .seed = static_cast<int64_t>(dropout.key->seed), .stream = dropout.key->next_stream()};
  }
  return call
      .result(ops::attention_fused(call.q, call.k, call.v, call.terms, call.query_ids, call.key_ids, call.attend,
                                   state.window, drop, call.packed))
      .to(q_BTHD.scalar_type());
}

}  // namespace

Kernel kernel_of_name(std::string_view name) {
  for (const Kernel kernel : {Kernel::kAuto, Kernel::kFused, Kernel::kExplicit, Kernel::kRef}) {
    if (name_of(kernel) == name) return kernel;
  }
  fail("attention", "kernel must be auto, fused, explicit or ref, got {}", io::printable(std::string(name)));
}

std::string_view name_of(Kernel kernel) {
  switch (kernel) {
    case Kernel::kAuto:
      return "auto";
    case Kernel::kFused:
      return "fused";
    case Kernel::kExplicit:
      return "explicit";
    case Kernel::kRef:
      return "ref";
  }
  fail("attention", "unknown kernel, got {}", static_cast<int>(kernel));
}

bool loops_are_asked_for() {
  const std::string_view target = rf_target();
  TORCH_CHECK_VALUE(!target.empty(), rf_last_error());  // the error that any call of a kernel would have
  return target == "ref";
}

Kernel automatic_kernel(at::ScalarType dtype, const Terms& terms) {
  return choose(Kernel::kAuto, at::kCPU, dtype, terms, {});
}

at::Tensor rotated(const at::Tensor& x_BTHD, const Rotation& rotation, const std::string& layout) {
  if (!rotation.defined()) return x_BTHD;
  const at::ScalarType dtype = ops::row_dtype(x_BTHD.scalar_type());
  return ops::rotate(x_BTHD, rotation.cos.to(dtype), rotation.sin.to(dtype), layout);
}

at::Tensor heads_first(const at::Tensor& x_BSHD, int64_t heads) {
  const int64_t given = x_BSHD.size(2);
  if (given == heads) return x_BSHD.transpose(1, 2);
  return x_BSHD.transpose(1, 2).unsqueeze(2).expand({-1, -1, heads / given, -1, -1}).flatten(1, 2);
}

double score_scale(const Terms& terms, const at::Tensor& q_BTHD) {
  return terms.scale.value_or(1.0 / std::sqrt(static_cast<double>(q_BTHD.size(3))));
}

at::Tensor attention(const at::Tensor& q_BTHD, const at::Tensor& k_BSHD, const at::Tensor& v_BSHD, const Terms& terms,
                     const AttentionContext& context, const AttentionDropout& dropout) {
  AttentionContext::State& state = context.state();
  check_attention(q_BTHD, k_BSHD, v_BSHD, terms, state);
  const Kernel kernel = choose(state.kernel, q_BTHD.device(), q_BTHD.scalar_type(), terms, dropout);
  if (kernel == Kernel::kFused) return fused_attention(q_BTHD, k_BSHD, v_BSHD, terms, state, dropout);
  if (kernel == Kernel::kRef) {
    if (dropout.p > 0) fail("attention", "dropout must be 0 with kernel ref, got {}", dropout.p);
    const KernelCall call(q_BTHD, k_BSHD, v_BSHD, terms, state);
    return call.result(ops::attention_ref(call.q, call.k, call.v, call.terms, call.query_ids, call.key_ids, call.attend,
                                          state.window, call.packed));
  }
  const at::Tensor out_BTHD = explicit_attention(q_BTHD, k_BSHD, v_BSHD, terms, state, dropout);
  const at::Tensor& has_key_BTH1 = state.mask().has_key_BTH1;
  return has_key_BTH1.defined() ? at::where(has_key_BTH1, out_BTHD, 0) : out_BTHD;
}

namespace {

// The ends of packed sequences as numbers.
std::vector<int64_t> checked_ends(const char* name, const at::Tensor& cu_seqlens, int64_t tokens) {
  const at::ScalarType type = cu_seqlens.scalar_type();
  if (cu_seqlens.dim() != 1 || cu_seqlens.size(0) == 0 || (type != at::kInt && type != at::kLong)) {
    fail("attention", "{} must be int32 or int64 [sequences + 1], got {} {}", name, toString(type),
         cu_seqlens.sizes().vec());
  }
  const at::Tensor ends = cu_seqlens.to(at::kCPU, at::kLong).contiguous();
  const int64_t* first = ends.const_data_ptr<int64_t>();
  const std::vector<int64_t> numbers(first, first + ends.numel());
  if (numbers.front() != 0) fail("attention", "{} must begin with 0, got {}", name, numbers.front());
  if (numbers.back() != tokens) {
    fail("attention", "{} must end with the number of tokens {}, got {}", name, tokens, numbers.back());
  }
  for (size_t i = 1; i < numbers.size(); ++i) {
    if (numbers[i] < numbers[i - 1]) {
      fail("attention", "{} must not decrease, got {} after {}", name, numbers[i], numbers[i - 1]);
    }
  }
  return numbers;
}

// Tokens begin .. begin+count-1 of a side.
struct Slice {
  int64_t begin, count;
  at::Tensor operator()(const at::Tensor& x_BT) const { return x_BT.narrow(1, begin, count); }
  TokenPositions operator()(const TokenPositions& side) const {
    return {(*this)(side.ids), (*this)(side.first), (*this)(side.end)};
  }
  Rotation operator()(const Rotation& rotation) const {
    return rotation.defined() ? Rotation{(*this)(rotation.cos), (*this)(rotation.sin)} : rotation;
  }
};

}  // namespace

at::Tensor packed_attention(const at::Tensor& q_BTHD, const at::Tensor& k_BSHD, const at::Tensor& v_BSHD,
                            const Terms& terms, const Positions& positions, TokenWindow window,
                            const at::Tensor& cu_seqlens_query, const at::Tensor& cu_seqlens_key, Kernel kernel) {
  check_data(q_BTHD, k_BSHD, v_BSHD);
  if (q_BTHD.size(0) != 1) fail("attention", "packed sequences must have batch size 1, got {}", q_BTHD.size(0));
  const auto query_ends = checked_ends("cu_seqlens", cu_seqlens_query, q_BTHD.size(1)),
             key_ends = checked_ends("cu_seqlens_k", cu_seqlens_key, k_BSHD.size(1));
  if (query_ends.size() != key_ends.size()) {
    fail("attention", "cu_seqlens and cu_seqlens_k must have the same number of sequences, got {} and {}",
         query_ends.size() - 1, key_ends.size() - 1);
  }
  const AttentionContext all(positions, {}, window, kernel);
  check_attention(q_BTHD, k_BSHD, v_BSHD, terms, all.state());
  if (choose(kernel, q_BTHD.device(), q_BTHD.scalar_type(), terms, {}) != Kernel::kExplicit) {
    all.state().set_packing({cu_seqlens_query, cu_seqlens_key});
    return attention(q_BTHD, k_BSHD, v_BSHD, terms, all);
  }
  std::vector<at::Tensor> outputs;
  for (size_t i = 1; i < query_ends.size(); ++i) {
    const Slice query{query_ends[i - 1], query_ends[i] - query_ends[i - 1]},
        key{key_ends[i - 1], key_ends[i] - key_ends[i - 1]};
    Terms own = terms;
    own.query = query(terms.query);
    own.key = key(terms.key);
    own.value = key(terms.value);
    own.query_positions = own.key_positions = at::Tensor();  // of all sequences; they have been checked
    const AttentionContext context({query(positions.query), key(positions.key)}, {}, window, kernel);
    outputs.push_back(attention(query(q_BTHD), key(k_BSHD), key(v_BSHD), own, context));
  }
  if (outputs.empty()) return attention(q_BTHD, k_BSHD, v_BSHD, terms, all);
  return at::cat(outputs, 1);
}

}  // namespace rf::nn
