// Parameters of an encoding by layer (layer_parameters.h), and what replaces registered tensors (rf/nn/parameter.h).
#include "layer_parameters.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <fmt/ranges.h>

#include <cmath>

#include "rf/io/error.h"

namespace rf::nn {

namespace {
thread_local int empty_scopes = 0;
thread_local const ParameterScope* innermost = nullptr;
}  // namespace

ParameterScope::ParameterScope(const std::vector<at::Tensor>& registered, const std::vector<at::Tensor>& given)
    : outer_(innermost) {
  for (size_t i = 0; i < given.size(); ++i) given_.emplace(registered.at(i).unsafeGetTensorImpl(), given[i]);
  innermost = this;
}

ParameterScope::~ParameterScope() { innermost = outer_; }

const at::Tensor& Parameter::current() const {
  if (innermost == nullptr || !registered_.defined()) return registered_;
  const auto found = innermost->given_.find(registered_.unsafeGetTensorImpl());
  return found == innermost->given_.end() ? registered_ : found->second;
}

EmptyParameters::EmptyParameters() { ++empty_scopes; }
EmptyParameters::~EmptyParameters() { --empty_scopes; }
bool EmptyParameters::wanted() { return empty_scopes > 0; }

std::shared_ptr<torch::nn::Module> child(torch::nn::Module& parent, const std::string& name) {
  const auto children = parent.named_children();
  if (const auto* found = children.find(name)) return *found;
  return parent.register_module(name, std::make_shared<torch::nn::Module>(name));
}

void register_dotted(torch::nn::Module& root, const std::string& name, at::Tensor value, RegisteredAs kind) {
  torch::nn::Module* module = &root;
  size_t begin = 0;
  for (size_t dot; (dot = name.find('.', begin)) != std::string::npos; begin = dot + 1) {
    module = child(*module, name.substr(begin, dot - begin)).get();
  }
  const std::string leaf = name.substr(begin);
  if (kind == RegisteredAs::kBuffer) {
    module->register_buffer(leaf, std::move(value));
  } else {
    module->register_parameter(leaf, std::move(value));
  }
}

at::Tensor drawn(at::IntArrayRef sizes, const EncodingShape& shape, double mean) {
  const at::Tensor values = at::empty(sizes, at::kFloat);
  return EmptyParameters::wanted() ? values : values.normal_(mean, shape.initializer_range);
}

at::Tensor uniform(at::IntArrayRef sizes, double low, double high) {
  const at::Tensor values = at::empty(sizes, at::kFloat);
  return EmptyParameters::wanted() ? values : values.uniform_(low, high);
}

std::vector<Parameter> layer_parameters(torch::nn::Module& module, int64_t layers, const std::string& name,
                                        const std::function<at::Tensor()>& draw) {
  const std::shared_ptr<torch::nn::Module> all = child(module, "layer");
  std::vector<Parameter> parameters;
  for (int64_t i = 0; i < layers; ++i) {
    parameters.emplace_back(child(*all, std::to_string(i))->register_parameter(name, draw()));
  }
  return parameters;
}

at::Tensor projected_rows(const at::Tensor& rows_RC, const at::Tensor& weight, const at::Tensor& bias,
                          const EncodingShape& shape) {
  const at::Tensor rows_HRD =
      at::linear(rows_RC.to(weight.scalar_type()), weight, bias).unflatten(-1, {-1, shape.head_dim}).transpose(0, 1);
  const int64_t group = shape.heads / rows_HRD.size(0);
  return group == 1 ? rows_HRD : rows_HRD.repeat_interleave(group, 0);
}

at::Tensor ReadVectors::scores() const { return at::einsum("bthd,bshd->bhts", {q_BTHD, k_BSHD}) * scale; }

ReadVectors read_grouped_vectors(std::string_view where, const Projections& given, int64_t head_dim,
                                 std::optional<int64_t> heads) {
  const at::Tensor &q_BTHD = given.query_BTHD, &k_BSHD = given.key_BSHD;
  if (q_BTHD.size(3) != head_dim) {
    fail(where, "queries must have head_dim {} numbers, got {}", head_dim, q_BTHD.size(3));
  }
  if (heads && q_BTHD.size(2) != *heads) fail(where, "queries must have {} heads, got {}", *heads, q_BTHD.size(2));
  const at::ScalarType dtype = ops::row_dtype(q_BTHD.scalar_type());
  return {
      .q_BTHD = q_BTHD.to(dtype), .k_BSHD = k_BSHD.to(dtype), .scale = 1 / std::sqrt(static_cast<double>(head_dim))};
}

ReadVectors read_vectors(std::string_view where, const Projections& given, int64_t head_dim,
                         std::optional<int64_t> heads) {
  ReadVectors x = read_grouped_vectors(where, given, head_dim, heads);
  const int64_t group = x.q_BTHD.size(2) / x.k_BSHD.size(2);
  if (group != 1) x.k_BSHD = x.k_BSHD.repeat_interleave(group, 2);
  return x;
}

at::Tensor read_hidden(std::string_view where, const at::Tensor& hidden_BTC, int64_t width, const at::Tensor& like) {
  if (hidden_BTC.dim() != 3 || hidden_BTC.size(2) != width) {
    fail(where, "hidden_states must be [batch, tokens, {}], got [{}]", width, fmt::join(hidden_BTC.sizes(), ", "));
  }
  return hidden_BTC.to(at::promote_types(like.scalar_type(), at::kFloat));
}

}  // namespace rf::nn
