// torch.classes.roformer.Encoding: a position encoding for Python (python/roformer_cpp/encoding.py). Parameters are
// handed out as they are (shared storage).
#include <torch/custom_class.h>

#include "rf/nn/encoding.h"
#include "script_terms.h"

namespace rf::nn {

namespace {

using MaybeTensor = std::optional<at::Tensor>;

struct ScriptEncoding : torch::CustomClassHolder {
  // options: JSON; shape: layers, heads, head_dim, hidden_size, input_size, max_position_embeddings, causal (0 or 1).
  ScriptEncoding(const std::string& type, const std::string& options, const std::vector<int64_t>& shape,
                 double initializer_range)
      : encoding(make_encoding({type, options}, {.layers = shape.at(0),
                                                 .heads = shape.at(1),
                                                 .head_dim = shape.at(2),
                                                 .hidden_size = shape.at(3),
                                                 .input_size = shape.at(4),
                                                 .max_position_embeddings = shape.at(5),
                                                 .causal = shape.at(6) != 0,
                                                 .initializer_range = initializer_range})) {}

  MaybeTensor input(const at::Tensor& positions) const {
    const at::Tensor added = encoding->input(make_positions(positions).query);
    return added.defined() ? MaybeTensor(added) : std::nullopt;
  }

  TensorDict terms(int64_t layer, const at::Tensor& positions, const MaybeTensor& key_positions,
                   const MaybeTensor& sequences, const std::vector<at::Tensor>& projections, int64_t dtype) const {
    const Positions where =
        make_positions(positions, key_positions.value_or(at::Tensor()), sequences.value_or(at::Tensor()));
    Projections weights;
    if (projections.size() > 0) weights.query_weight = projections[0];
    if (projections.size() > 1) weights.key_weight = projections[1];
    if (projections.size() > 2) weights.value_weight = projections[2];
    const Shared shared = encoding->shared(where, static_cast<at::ScalarType>(dtype));
    return to_dict(encoding->terms(layer, shared, weights));
  }

  std::shared_ptr<Encoding> encoding;
};

TensorDict named(const torch::OrderedDict<std::string, at::Tensor>& tensors) {
  TensorDict dict;
  for (const auto& item : tensors) dict.insert(item.key(), item.value());
  return dict;
}

TORCH_LIBRARY_FRAGMENT(roformer, library) {
  library.class_<ScriptEncoding>("Encoding")
      .def(torch::init<std::string, std::string, std::vector<int64_t>, double>())
      .def("input", &ScriptEncoding::input)
      .def("terms", &ScriptEncoding::terms)
      .def("changes_with_length",
           [](const c10::intrusive_ptr<ScriptEncoding>& self) { return self->encoding->changes_with_length(); })
      .def("named_parameters",
           [](const c10::intrusive_ptr<ScriptEncoding>& self) { return named(self->encoding->named_parameters()); })
      .def("named_buffers",
           [](const c10::intrusive_ptr<ScriptEncoding>& self) { return named(self->encoding->named_buffers()); });
}

}  // namespace

}  // namespace rf::nn
