// torch.classes.roformer.Encoding and roformer::encodings: position encodings for Python
// (python/roformer_cpp/encoding.py), which gives the parameters to each call (script_terms.h).
#include <fmt/ranges.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "layer_parameters.h"
#include "rf/io/error.h"
#include "rf/nn/devices.h"
#include "rf/nn/encoding.h"
#include "script_terms.h"

namespace rf::nn {

namespace {

using MaybeTensor = std::optional<at::Tensor>;

struct ScriptEncoding : torch::CustomClassHolder {
  // options: JSON; shape: layers, heads, head_dim, hidden_size, input_size, max_position_embeddings, causal (0 or 1),
  // vocab_size (0: not known).
  // empty: parameters without values.
  ScriptEncoding(const std::string& type, const std::string& options, const std::vector<int64_t>& shape,
                 double initializer_range, bool empty)
      : ScriptEncoding(made({type, options}, shape, initializer_range, empty), shape.at(0)) {}

  ScriptEncoding(std::shared_ptr<Encoding> encoding, int64_t layers)
      : layers(layers), encoding(std::move(encoding)), tensors(*this->encoding, "encoding") {}

  static std::shared_ptr<Encoding> made(const EncodingConfig& config, const std::vector<int64_t>& shape,
                                        double initializer_range, bool empty) {
    std::optional<EmptyParameters> without_values;
    if (empty) without_values.emplace();
    const EncodingShape sizes{.layers = shape.at(0),
                              .heads = shape.at(1),
                              .head_dim = shape.at(2),
                              .hidden_size = shape.at(3),
                              .input_size = shape.at(4),
                              .max_position_embeddings = shape.at(5),
                              .causal = shape.at(6) != 0,
                              .initializer_range = initializer_range,
                              .vocab_size = shape.at(7)};
    return with_value_errors([&] { return make_encoding(config, sizes); });
  }

  static c10::intrusive_ptr<ScriptEncoding> combine(const c10::List<c10::intrusive_ptr<ScriptEncoding>>& encodings) {
    std::vector<std::shared_ptr<Encoding>> parts;
    int64_t layers = INT64_MAX;
    for (const c10::intrusive_ptr<ScriptEncoding>& part : encodings.vec()) {
      parts.push_back(part->encoding);
      layers = std::min(layers, part->layers);
    }
    return with_value_errors(
        [&] { return c10::make_intrusive<ScriptEncoding>(combine_encodings(std::move(parts)), layers); });
  }

  MaybeTensor input(const std::vector<at::Tensor>& given, const at::Tensor& positions, int64_t dtype) const {
    return with_value_errors([&] {
      const ParameterScope scope = tensors.in_place(given);
      const at::Tensor added = encoding->input(make_positions(positions).query, static_cast<at::ScalarType>(dtype));
      return added.defined() ? MaybeTensor(on_device(added, positions.device())) : std::nullopt;
    });
  }

  at::Tensor words(const std::vector<at::Tensor>& given, const at::Tensor& words_BTE, const at::Tensor& ids_BT,
                   const at::Tensor& positions) const {
    return with_value_errors([&] {
      const ParameterScope scope = tensors.in_place(given);
      if (words_BTE.dim() != 3 || ids_BT.sizes() != words_BTE.sizes().slice(0, 2) ||
          ids_BT.scalar_type() != at::kLong) {
        fail("encoding",
             "words must be [batch, tokens, embedding_size] and input_ids int64 [batch, tokens], got [{}] "
             "and {} [{}]",
             fmt::join(words_BTE.sizes(), ", "), toString(ids_BT.scalar_type()), fmt::join(ids_BT.sizes(), ", "));
      }
      const TokenPositions where = make_positions(positions).query;
      const at::IntArrayRef shape = where.ids.sizes();
      if (shape[1] != ids_BT.size(1) || (shape[0] != 1 && shape[0] != ids_BT.size(0))) {
        fail("encoding", "positions must be those of the {} tokens of a row, got [{}]", ids_BT.size(1),
             fmt::join(shape, ", "));
      }
      return encoding->words(words_BTE, ids_BT, where);
    });
  }

  MaybeTensor layer_input(const std::vector<at::Tensor>& given, int64_t layer, const at::Tensor& positions,
                          int64_t dtype) const {
    return with_value_errors([&] {
      const ParameterScope scope = tensors.in_place(given);
      check_layer(layer);
      const Shared shared = encoding->shared(make_positions(positions), static_cast<at::ScalarType>(dtype));
      const at::Tensor added = encoding->layer_input(layer, shared);
      return added.defined() ? MaybeTensor(added.to(static_cast<at::ScalarType>(dtype))) : std::nullopt;
    });
  }

  TermLists terms(const std::vector<at::Tensor>& given, int64_t layer, const at::Tensor& positions,
                  const MaybeTensor& key_positions, const MaybeTensor& sequences,
                  const std::vector<at::Tensor>& projections, const MaybeTensor& hidden, const MaybeTensor& queries,
                  const MaybeTensor& keys, int64_t dtype) const {
    return with_value_errors([&] {
      const ParameterScope scope = tensors.in_place(given);
      check_layer(layer);
      const auto at_place = [&](size_t i) { return i < projections.size() ? projections[i] : at::Tensor(); };
      Projections of_layer{at_place(0), at_place(1), at_place(2), at_place(3), at_place(4), at_place(5)};
      if (hidden && encoding->numbers_per_token() > 0) {
        of_layer.token_numbers_BSN = encoding->token_numbers(layer, *hidden);
      }
      of_layer.query_BTHD = queries.value_or(at::Tensor());
      of_layer.key_BSHD = keys.value_or(at::Tensor());
      const Positions where =
          make_positions(positions, key_positions.value_or(at::Tensor()), sequences.value_or(at::Tensor()));
      const Shared shared = encoding->shared(where, static_cast<at::ScalarType>(dtype));
      Terms terms = encoding->terms(layer, shared, of_layer);
      terms.query_positions = on_device(terms.query_positions, where.device());
      terms.key_positions = on_device(terms.key_positions, where.device());
      return lists_of(terms);
    });
  }

  void check_layer(int64_t layer) const {
    if (layer < 0 || layer >= layers) {
      fail("encoding", "layer must be at least 0 and below num_hidden_layers {}, got {}", layers, layer);
    }
  }

  int64_t layers;
  std::shared_ptr<Encoding> encoding;
  ScriptTensors tensors;
};

using EncodingSelf = c10::intrusive_ptr<ScriptEncoding>;

TORCH_LIBRARY_FRAGMENT(roformer, library) {
  library.class_<ScriptEncoding>("Encoding")
      .def(torch::init<std::string, std::string, std::vector<int64_t>, double, bool>())
      .def("input", &ScriptEncoding::input)
      .def("words", &ScriptEncoding::words)
      .def("layer_input", &ScriptEncoding::layer_input)
      .def("terms", &ScriptEncoding::terms)
      .def("changes_words", [](const EncodingSelf& self) { return self->encoding->changes_words(); })
      .def("reads",
           [](const EncodingSelf& self) {
             std::vector<std::string> read;
             if (self->encoding->numbers_per_token() > 0) read.emplace_back("tokens");
             if (self->encoding->reads_vectors()) read.emplace_back("vectors");
             return read;
           })
      .def("reads_sequences", [](const EncodingSelf& self) { return self->encoding->reads_sequences(); })
      .def("made_for",
           [](const EncodingSelf& self) {
             const MadeFor made_for = self->encoding->made_for();
             return std::string(made_for == MadeFor::kAnyAttention ? ""
                                : made_for == MadeFor::kCausal     ? "causal"
                                                                   : "bidirectional");
           })
      .def("scales_scores", [](const EncodingSelf& self) { return self->encoding->scales_scores(); })
      .def("train", [](const EncodingSelf& self, bool on) { self->encoding->train(on); })
      .def("changes_with_length", [](const EncodingSelf& self) { return self->encoding->changes_with_length(); })
      .def("named_parameters", [](const EncodingSelf& self) { return self->tensors.parameters(); })
      .def("named_buffers", [](const EncodingSelf& self) { return self->tensors.buffers(); })
      .def("release", [](const EncodingSelf& self) { self->tensors.release(); });
  library.def("encodings", [] { return encodings_json().dump(); });
  library.def("combine_encodings", &ScriptEncoding::combine);
}

}  // namespace

}  // namespace rf::nn
