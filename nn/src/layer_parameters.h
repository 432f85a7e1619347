// Shared by encodings: initial values of parameters, parameters of each layer, tables multiplied by a layer's
// projection, and queries and keys for terms that depend on both.
#pragma once

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rf/nn/encoding.h"
#include "rf/nn/parameter.h"

namespace rf::nn {

// The module of that name in parent, created if it is missing.
std::shared_ptr<torch::nn::Module> child(torch::nn::Module& parent, const std::string& name);

// Registers a parameter or a buffer under a dotted name, making plain modules on the way.
enum class RegisteredAs { kParameter, kBuffer };
void register_dotted(torch::nn::Module& root, const std::string& name, at::Tensor value,
                     RegisteredAs kind = RegisteredAs::kParameter);

// While it exists, this thread creates parameters without values, because a file provides them: nothing is computed,
// and torch's generator is not used.
class EmptyParameters {
 public:
  EmptyParameters();
  ~EmptyParameters();
  EmptyParameters(const EmptyParameters&) = delete;
  EmptyParameters& operator=(const EmptyParameters&) = delete;
  static bool wanted();  // one exists
};

// float32, N(mean, initializer_range^2), or without values.
at::Tensor drawn(at::IntArrayRef sizes, const EncodingShape& shape, double mean = 0);

// float32, uniform in low .. high, or without values.
at::Tensor uniform(at::IntArrayRef sizes, double low, double high);

// Registers layer.<i>.<name> = draw() for each layer i, and returns them in order.
std::vector<Parameter> layer_parameters(torch::nn::Module& module, int64_t layers, const std::string& name,
                                        const std::function<at::Tensor()>& draw);

// Rows of a table through a projection, [H, R, D] in the projection's dtype. rows: [R, C]; weight: [H*D, C] or, of
// grouped keys, [Hk*D, C], each of whose heads serves H/Hk heads of the queries; bias may be undefined.
at::Tensor projected_rows(const at::Tensor& rows_RC, const at::Tensor& weight, const at::Tensor& bias,
                          const EncodingShape& shape);

// While it exists, autocast lowers nothing in this thread: for sums whose roundings would add up.
struct NoAutocast {
  c10::impl::ExcludeDispatchKeyGuard guard{c10::autocast_dispatch_keyset};
};

// Queries and keys in float32 or float64, with one key head per query head.
struct ReadVectors {
  at::Tensor q_BTHD, k_BSHD;
  double scale;               // s = 1/sqrt(D)
  at::Tensor scores() const;  // s q.k, [B,H,T,S]
};
// Throws Error for vectors whose size is not head_dim, or that have other heads than those given.
ReadVectors read_vectors(std::string_view where, const Projections& given, int64_t head_dim,
                         std::optional<int64_t> heads = {});
// The same, but keys keep their number of heads; each key head serves a group of query heads.
ReadVectors read_grouped_vectors(std::string_view where, const Projections& given, int64_t head_dim,
                                 std::optional<int64_t> heads = {});

// The input of a layer [B,T,width] in the dtype of a parameter, at least float32. Throws Error for another shape.
at::Tensor read_hidden(std::string_view where, const at::Tensor& hidden_BTC, int64_t width, const at::Tensor& like);

}  // namespace rf::nn
