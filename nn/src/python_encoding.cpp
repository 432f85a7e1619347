// The operators of namespace roformer_python (python_encoding.h). A Python module is known by a number; what its
// shared() returns stays in Python and is known by a number too.
#include "python_encoding.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <utility>

#include "known_values.h"
#include "layer_parameters.h"
#include "rf/io/error.h"
#include "rf/nn/devices.h"
#include "script_terms.h"

namespace rf::nn {

namespace {

using torch::jit::Stack;

std::optional<c10::OperatorHandle> find_in_python(const char* name) {
  return c10::Dispatcher::singleton().findSchema({std::string("roformer_python::") + name, ""});
}

template <class... Arguments>
Stack call_python(const char* name, Arguments&&... arguments) {
  const auto op = find_in_python(name);
  if (!op)
    fail("position_encoding", "an encoding of Python must be used while Python runs, got {} after its end", name);
  Stack stack;
  torch::jit::push(stack, std::forward<Arguments>(arguments)...);
  op->callBoxed(stack);
  return stack;
}

// Something that Python keeps until the last copy of its number is gone.
class KeptInPython {
 public:
  explicit KeptInPython(int64_t number) : number_(number) {}
  ~KeptInPython() {
    try {
      if (find_in_python("release")) call_python("release", number_);
    } catch (const std::exception&) {  // at the end of the process
    }
  }
  KeptInPython(const KeptInPython&) = delete;
  KeptInPython& operator=(const KeptInPython&) = delete;
  int64_t number() const { return number_; }

 private:
  int64_t number_;
};

class PythonEncoding : public Encoding {
 public:
  explicit PythonEncoding(int64_t number) : module_(number) {
    const Stack facts = call_python("facts", number);
    reads_vectors_ = facts.at(0).toBool();
    scales_scores_ = facts.at(1).toBool();
    numbers_per_token_ = facts.at(2).toInt();
    max_length_ = facts.at(3).toOptional<int64_t>();
    adds_input_ = facts.at(4).toBool();
    changes_words_ = facts.at(5).toBool();
    adds_to_layers_ = facts.at(6).toBool();
    reads_projections_ = facts.at(7).toBool();
    const Stack stack = call_python("tensors", number);
    const std::vector<at::Tensor> values = stack.at(0).toTensorVector();
    const auto names = stack.at(1).toListRef();
    const auto parameters = static_cast<size_t>(stack.at(2).toInt());
    for (size_t i = 0; i < values.size(); ++i) {
      const at::Tensor value = values[i].detach();
      const auto kind = i < parameters ? RegisteredAs::kParameter : RegisteredAs::kBuffer;
      register_dotted(*this, names[i].toStringRef(), value, kind);
      tensors_.emplace_back(value);
    }
  }

  at::Tensor input(const TokenPositions& positions, at::ScalarType dtype) override {
    check_positions(positions.ids);
    if (!adds_input_) return {};
    const Stack stack = call("input", on_device(positions.ids, positions.device), static_cast<int64_t>(dtype));
    return stack.at(0).isNone() ? at::Tensor() : stack.at(0).toTensor();
  }

  at::Tensor words(const at::Tensor& words_BTE, const at::Tensor& ids_BT,
                   const TokenPositions& positions) const override {
    check_positions(positions.ids);
    if (!changes_words_) return words_BTE;
    return call("words", words_BTE, ids_BT, on_device(positions.ids, words_BTE.device())).at(0).toTensor();
  }
  bool changes_words() const override { return changes_words_; }

  at::Tensor layer_input(int64_t layer, const Shared& shared) const override {
    if (!adds_to_layers_) return {};
    const Stack stack = call("layer_input", number_of(shared), layer);
    return stack.at(0).isNone() ? at::Tensor() : stack.at(0).toTensor();
  }

  int64_t numbers_per_token() const override { return numbers_per_token_; }
  at::Tensor token_numbers(int64_t layer, const at::Tensor& hidden_BTC) const override {
    if (numbers_per_token_ == 0) return {};
    return call("token_numbers", layer, hidden_BTC).at(0).toTensor();
  }

  // Some positions do not say whether the input of others is changed.
  const char* beyond_terms() const override {
    if (adds_input_) return "vectors added to the input by an encoding of Python";
    if (changes_words_) return "word embeddings changed by an encoding of Python";
    return adds_to_layers_ ? "vectors added to the input of every layer by an encoding of Python" : nullptr;
  }

  bool reads_vectors() const override { return reads_vectors_; }
  bool reads_projections() const override { return reads_projections_; }
  bool scales_scores() const override { return scales_scores_; }
  void check_length(int64_t tokens) const override { check_position(tokens - 1); }
  // Python does not say where its tables end, so each length is taken to add rows.
  int64_t last_new_length() const override { return max_length_.value_or(INT64_MAX); }

  Shared compute_shared(const Positions& positions, at::ScalarType dtype) override {
    check_positions(positions.query.ids);
    check_positions(positions.key.ids);
    const Stack stack = call("shared", on_device(positions.query.ids, positions.device()),
                             on_device(positions.key.ids, positions.device()), static_cast<int64_t>(dtype));
    Shared shared;
    shared.in_python = std::make_shared<KeptInPython>(stack.at(0).toInt());
    return shared;
  }

  Terms compute_terms(int64_t layer, const Shared& shared, const Projections& projections) override {
    std::vector<at::Tensor> weights;
    for (const at::Tensor* x : {&projections.query_weight, &projections.key_weight, &projections.value_weight,
                                &projections.query_bias, &projections.key_bias, &projections.value_bias}) {
      if (x->defined()) weights.push_back(*x);
    }
    std::vector<at::Tensor> read;
    if (numbers_per_token_ > 0) read.push_back(projections.token_numbers_BSN);
    if (reads_vectors_) read.insert(read.end(), {projections.query_BTHD, projections.key_BSHD});
    const Stack stack = call("terms", number_of(shared), layer, weights, read);
    std::vector<std::string> names;
    for (const c10::IValue& name : stack.at(1).toListRef()) names.push_back(name.toStringRef());
    const std::vector<at::Tensor> tensors = stack.at(0).toTensorVector();
    return terms_of(
        {tensors, names, stack.at(2).toIntVector(), stack.at(3).toStringRef(), stack.at(4).toOptional<double>()});
  }

 private:
  // A method of the module, with the tensors of this call and in its mode.
  template <class... Arguments>
  Stack call(const char* name, Arguments&&... arguments) const {
    return call_python(name, module_.number(), std::vector<at::Tensor>(tensors_.begin(), tensors_.end()), is_training(),
                       std::forward<Arguments>(arguments)...);
  }

  static int64_t number_of(const Shared& shared) {
    return std::static_pointer_cast<KeptInPython>(shared.in_python)->number();
  }

  void check_positions(const at::Tensor& ids) const {
    if (max_length_ && ids.numel() > 0 && values_are_known(ids)) check_position(ids.max().item<int64_t>());
  }

  void check_position(int64_t last) const {
    if (!max_length_ || last < *max_length_) return;
    fail("position_encoding", "positions must be below {}, the max_length of the encoding, got {}", *max_length_, last);
  }

  KeptInPython module_;
  bool reads_vectors_, scales_scores_, adds_input_, changes_words_, adds_to_layers_, reads_projections_;
  int64_t numbers_per_token_;
  std::optional<int64_t> max_length_;  // of sequences; absent: any
  std::vector<Parameter> tensors_;     // parameters, then buffers
};

}  // namespace

bool is_python_encoding(const Encoding& encoding) { return dynamic_cast<const PythonEncoding*>(&encoding) != nullptr; }

bool is_python_encoding(const std::string& name) {
  return find_in_python("knows") && call_python("knows", name).at(0).toBool();
}

std::shared_ptr<Encoding> make_python_encoding(const EncodingConfig& config, const EncodingShape& shape) {
  if (!is_python_encoding(config.type)) return nullptr;
  const std::vector<int64_t> sizes = {shape.layers,         shape.heads,      shape.head_dim,
                                      shape.hidden_size,    shape.input_size, shape.max_position_embeddings,
                                      shape.causal ? 1 : 0, shape.vocab_size};
  const Stack stack = call_python("make", config.type, config.options, sizes, shape.initializer_range);
  return std::make_shared<PythonEncoding>(stack.at(0).toInt());
}

}  // namespace rf::nn
