// A position encoding for Python: torch.classes.roformer.Encoding, and its shared values in a forward pass.
#pragma once

#include <torch/custom_class.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rf/nn/encoding.h"
#include "script_terms.h"

namespace rf::nn {

struct ScriptShared : torch::CustomClassHolder {
  explicit ScriptShared(Shared shared) : shared(std::move(shared)) {}
  Shared shared;
};

struct ScriptEncoding : torch::CustomClassHolder {
  using MaybeTensor = std::optional<at::Tensor>;
  using SharedPointer = c10::intrusive_ptr<ScriptShared>;

  // options: JSON; shape: layers, heads, head_dim, hidden_size, input_size, max_position_embeddings, causal (0 or 1),
  // vocab_size (0: not known).
  // empty: parameters without values.
  ScriptEncoding(const std::string& type, const std::string& options, const std::vector<int64_t>& shape,
                 double initializer_range, bool empty);
  // rotates_values: values are rotated as keys are.
  ScriptEncoding(std::shared_ptr<Encoding> encoding, int64_t layers, bool rotates_values = false)
      : layers(layers),
        rotates_values(rotates_values),
        encoding(std::move(encoding)),
        tensors(*this->encoding, "encoding") {}

  // real: TokenPositions::real. like: on the device of the terms; absent: positions.
  MaybeTensor input(const std::vector<at::Tensor>& given, const at::Tensor& positions, int64_t dtype,
                    const MaybeTensor& real) const;
  at::Tensor words(const std::vector<at::Tensor>& given, const at::Tensor& words_BTE, const at::Tensor& ids_BT,
                   const at::Tensor& positions) const;
  SharedPointer shared(const std::vector<at::Tensor>& given, const at::Tensor& positions,
                       const MaybeTensor& key_positions, const MaybeTensor& sequences, int64_t dtype,
                       const MaybeTensor& real, const MaybeTensor& like) const;
  MaybeTensor layer_input(const std::vector<at::Tensor>& given, int64_t layer, const SharedPointer& shared) const;
  // Absent for an encoding that does not read tokens.
  MaybeTensor token_numbers(const std::vector<at::Tensor>& given, int64_t layer, const at::Tensor& hidden) const;
  TermLists terms(const std::vector<at::Tensor>& given, int64_t layer, const SharedPointer& shared,
                  const std::vector<at::Tensor>& projections, const MaybeTensor& numbers, const MaybeTensor& queries,
                  const MaybeTensor& keys) const;
  void check_layer(int64_t layer) const;

  int64_t layers;
  bool rotates_values = false;
  std::shared_ptr<Encoding> encoding;
  ScriptTensors tensors;
};

// Before classes that return encodings.
void register_encodings(torch::Library& library);

}  // namespace rf::nn
