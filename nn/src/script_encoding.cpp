// torch.classes.roformer.Encoding and roformer::encodings: position encodings for Python
// (python/roformer_cpp/encoding.py), which gives the parameters to each call (script_terms.h).
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "known_values.h"
#include "layer_parameters.h"
#include "rf/io/error.h"
#include "rf/nn/devices.h"
#include "script_encoding.h"

namespace rf::nn {

namespace {

std::shared_ptr<Encoding> made_encoding(const EncodingConfig& config, const std::vector<int64_t>& shape,
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

c10::intrusive_ptr<ScriptEncoding> combined(const c10::List<c10::intrusive_ptr<ScriptEncoding>>& encodings) {
  std::vector<std::shared_ptr<Encoding>> parts;
  int64_t layers = INT64_MAX;
  for (const c10::intrusive_ptr<ScriptEncoding>& part : encodings.vec()) {
    parts.push_back(part->encoding);
    layers = std::min(layers, part->layers);
  }
  return with_value_errors(
      [&] { return c10::make_intrusive<ScriptEncoding>(combine_encodings(std::move(parts)), layers); });
}

std::optional<at::Tensor> maybe(const at::Tensor& x) { return x.defined() ? std::optional(x) : std::nullopt; }

}  // namespace

ScriptEncoding::ScriptEncoding(const std::string& type, const std::string& options, const std::vector<int64_t>& shape,
                               double initializer_range, bool empty)
    : ScriptEncoding(made_encoding({type, options}, shape, initializer_range, empty), shape.at(0)) {}

ScriptEncoding::MaybeTensor ScriptEncoding::input(const std::vector<at::Tensor>& given, const at::Tensor& positions,
                                                  int64_t dtype, const MaybeTensor& real) const {
  return with_value_errors([&] {
    const ParameterScope scope = tensors.in_place(given);
    TokenPositions where = make_positions(positions).query;
    where.real = real.value_or(at::Tensor());
    return maybe(on_device(encoding->input(where, static_cast<at::ScalarType>(dtype)), positions.device()));
  });
}

at::Tensor ScriptEncoding::words(const std::vector<at::Tensor>& given, const at::Tensor& words_BTE,
                                 const at::Tensor& ids_BT, const at::Tensor& positions) const {
  return with_value_errors([&] {
    const ParameterScope scope = tensors.in_place(given);
    if (words_BTE.dim() != 3 || ids_BT.sizes() != words_BTE.sizes().slice(0, 2) || ids_BT.scalar_type() != at::kLong) {
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

ScriptEncoding::SharedPointer ScriptEncoding::shared(const std::vector<at::Tensor>& given, const at::Tensor& positions,
                                                     const MaybeTensor& key_positions, const MaybeTensor& sequences,
                                                     int64_t dtype, const MaybeTensor& real,
                                                     const MaybeTensor& like) const {
  return with_value_errors([&] {
    const ParameterScope scope = tensors.in_place(given);
    Positions where = [&] {
      const OutsideTransforms constant;
      return make_positions(positions, key_positions.value_or(at::Tensor()), sequences.value_or(at::Tensor()));
    }();
    where.query.real = where.key.real = real.value_or(at::Tensor());
    if (like) where.for_device(like->device());
    return c10::make_intrusive<ScriptShared>(encoding->shared(where, static_cast<at::ScalarType>(dtype)));
  });
}

ScriptEncoding::MaybeTensor ScriptEncoding::layer_input(const std::vector<at::Tensor>& given, int64_t layer,
                                                        const SharedPointer& shared) const {
  return with_value_errors([&] {
    const ParameterScope scope = tensors.in_place(given);
    check_layer(layer);
    return maybe(encoding->layer_input(layer, shared->shared));
  });
}

ScriptEncoding::MaybeTensor ScriptEncoding::token_numbers(const std::vector<at::Tensor>& given, int64_t layer,
                                                          const at::Tensor& hidden) const {
  return with_value_errors([&] {
    const ParameterScope scope = tensors.in_place(given);
    check_layer(layer);
    return encoding->numbers_per_token() > 0 ? maybe(encoding->token_numbers(layer, hidden)) : std::nullopt;
  });
}

TermLists ScriptEncoding::terms(const std::vector<at::Tensor>& given, int64_t layer, const SharedPointer& shared,
                                const std::vector<at::Tensor>& projections, const MaybeTensor& numbers,
                                const MaybeTensor& queries, const MaybeTensor& keys) const {
  return with_value_errors([&] {
    const ParameterScope scope = tensors.in_place(given);
    check_layer(layer);
    const auto at_place = [&](size_t i) { return i < projections.size() ? projections[i] : at::Tensor(); };
    Projections of_layer{at_place(0), at_place(1), at_place(2), at_place(3), at_place(4), at_place(5)};
    of_layer.token_numbers_BSN = numbers.value_or(at::Tensor());
    of_layer.query_BTHD = queries.value_or(at::Tensor());
    of_layer.key_BSHD = keys.value_or(at::Tensor());
    Terms terms = encoding->terms(layer, shared->shared, of_layer);
    if (rotates_values) terms.value = terms.key;
    const at::Device device = shared->shared.positions.device();
    terms.query_positions = on_device(terms.query_positions, device);
    terms.key_positions = on_device(terms.key_positions, device);
    return lists_of(terms);
  });
}

void ScriptEncoding::check_layer(int64_t layer) const {
  if (layer < 0 || layer >= layers) {
    fail("encoding", "layer must be at least 0 and below num_hidden_layers {}, got {}", layers, layer);
  }
}

using EncodingSelf = c10::intrusive_ptr<ScriptEncoding>;

void register_encodings(torch::Library& library) {
  library.class_<ScriptShared>("SharedTerms");
  library.class_<ScriptEncoding>("Encoding")
      .def(torch::init<std::string, std::string, std::vector<int64_t>, double, bool>())
      .def("input", &ScriptEncoding::input)
      .def("words", &ScriptEncoding::words)
      .def("layer_input", &ScriptEncoding::layer_input)
      .def("shared", &ScriptEncoding::shared)
      .def("token_numbers", &ScriptEncoding::token_numbers)
      .def("terms", &ScriptEncoding::terms)
      .def("changes_words", [](const EncodingSelf& self) { return self->encoding->changes_words(); })
      .def("reads",
           [](const EncodingSelf& self) {
             std::vector<std::string> read;
             if (self->encoding->numbers_per_token() > 0) read.emplace_back("tokens");
             if (self->encoding->reads_vectors()) read.emplace_back("vectors");
             if (self->encoding->reads_projections()) read.emplace_back("projections");
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
  library.def("combine_encodings", combined);
}

}  // namespace rf::nn
