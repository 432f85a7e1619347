// torch.classes.roformer.Encoding and roformer::encodings: position encodings for Python
// (python/roformer_cpp/encoding.py). Parameters are handed out as they are (shared storage).
#include <torch/custom_class.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "rf/io/error.h"
#include "rf/nn/encoding.h"
#include "script_terms.h"

namespace rf::nn {

namespace {

using MaybeTensor = std::optional<at::Tensor>;

struct ScriptEncoding : torch::CustomClassHolder {
  // options: JSON; shape: layers, heads, head_dim, hidden_size, input_size, max_position_embeddings, causal (0 or 1).
  ScriptEncoding(const std::string& type, const std::string& options, const std::vector<int64_t>& shape,
                 double initializer_range)
      : layers(shape.at(0)),
        encoding(make_encoding({type, options}, {.layers = shape.at(0),
                                                 .heads = shape.at(1),
                                                 .head_dim = shape.at(2),
                                                 .hidden_size = shape.at(3),
                                                 .input_size = shape.at(4),
                                                 .max_position_embeddings = shape.at(5),
                                                 .causal = shape.at(6) != 0,
                                                 .initializer_range = initializer_range})) {}

  // encodings: those of a combination.
  explicit ScriptEncoding(const std::vector<c10::intrusive_ptr<ScriptEncoding>>& encodings) : layers(INT64_MAX) {
    std::vector<std::shared_ptr<Encoding>> parts;
    for (const auto& part : encodings) {
      parts.push_back(part->encoding);
      layers = std::min(layers, part->layers);
    }
    encoding = combine_encodings(std::move(parts));
  }

  MaybeTensor input(const at::Tensor& positions, int64_t dtype) const {
    const at::Tensor added = encoding->input(make_positions(positions).query, static_cast<at::ScalarType>(dtype));
    return added.defined() ? MaybeTensor(added) : std::nullopt;
  }

  TensorDict terms(int64_t layer, const at::Tensor& positions, const MaybeTensor& key_positions,
                   const MaybeTensor& sequences, const std::vector<at::Tensor>& projections, int64_t dtype) const {
    if (layer < 0 || layer >= layers) {
      fail("encoding", "layer must be at least 0 and below num_hidden_layers {}, got {}", layers, layer);
    }
    const Positions where =
        make_positions(positions, key_positions.value_or(at::Tensor()), sequences.value_or(at::Tensor()));
    Projections weights;
    if (projections.size() > 0) weights.query_weight = projections[0];
    if (projections.size() > 1) weights.key_weight = projections[1];
    if (projections.size() > 2) weights.value_weight = projections[2];
    if (projections.size() > 3) weights.query_bias = projections[3];
    if (projections.size() > 4) weights.key_bias = projections[4];
    if (projections.size() > 5) weights.value_bias = projections[5];
    const Shared shared = encoding->shared(where, static_cast<at::ScalarType>(dtype));
    return to_dict(encoding->terms(layer, shared, weights));
  }

  int64_t layers;
  std::shared_ptr<Encoding> encoding;
};

// encoding_infos() as a JSON array of objects.
std::string infos_as_json() {
  nlohmann::json all = nlohmann::json::array();
  for (const EncodingInfo& info : encoding_infos()) all.push_back(to_json(info));
  return all.dump();
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
  library.def("encodings", &infos_as_json);
  library.def("combine_encodings", [](const c10::List<c10::intrusive_ptr<ScriptEncoding>>& encodings) {
    return c10::make_intrusive<ScriptEncoding>(encodings.vec());
  });
}

}  // namespace

}  // namespace rf::nn
