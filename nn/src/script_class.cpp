// torch.classes.roformer.Model: what Python's model (python/roformer_cpp/model.py) asks C++ for: initial values, files,
// checks of inputs, and the position encoding.
#include <c10/util/Exception.h>
#include <fmt/ranges.h>
#include <torch/custom_class.h>

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "layer_parameters.h"
#include "position.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/printable.h"
#include "rf/nn/model.h"
#include "rf/nn/position_terms.h"
#include "rf/nn/seed_scope.h"
#include "script_encoding.h"
#include "script_terms.h"
#include "tokens.h"

namespace rf::nn {

namespace {

using MaybeKey = std::optional<std::vector<int64_t>>;

at::ScalarType dtype_of_name(const std::string& name) {
  if (name == "float32") return at::kFloat;
  if (name == "float64") return at::kDouble;
  fail("load_model", "dtype must be float32 or float64, got {}", name);
}

// A class name of transformers, or "" for the head that the configuration names.
std::optional<Head> head_of_name(const std::string& name) {
  return name.empty() ? std::nullopt : std::optional<Head>(head_of_architecture(name));
}

// key: of dropout, seed and step.
Input input_of(const TensorDict& tensors, const MaybeKey& key) {
  Input input;
  if (key) {
    if (key->size() != 2) fail("input", "dropout_key must be two numbers, seed and step, got {}", key->size());
    input.dropout_key = DropoutKey{static_cast<uint64_t>(key->at(0)), static_cast<uint64_t>(key->at(1))};
  }
  const std::map<std::string, at::Tensor*> members = {{"input_ids", &input.ids_BT},
                                                      {"attention_mask", &input.mask_BT},
                                                      {"token_type_ids", &input.types_BT},
                                                      {"segments", &input.sequence_ids_BT},
                                                      {"positions", &input.positions_BT},
                                                      {"encoder_hidden", &input.encoder_hidden_BSC},
                                                      {"encoder_mask", &input.encoder_mask_BS}};
  for (const auto& entry : tensors) {
    const auto member = members.find(entry.key());
    if (member == members.end()) {
      fail("input",
           "inputs must be input_ids, attention_mask, token_type_ids, segments, positions, encoder_hidden or "
           "encoder_mask, got {}",
           io::printable(entry.key()));
    }
    *member->second = entry.value();
  }
  return input;
}

// Keeps the warnings of this thread while it lives, for Python to give.
class KeptWarnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { messages_.push_back(io::message_text(warning.msg())); }
  std::vector<std::string> take() { return std::move(messages_); }

 private:
  std::vector<std::string> messages_;
  c10::WarningUtils::WarningHandlerGuard guard_{this};
};

// The layout from which Python builds its modules (python/roformer_cpp/model.py).
nlohmann::json layout_of(const ModelConfig& config, Head head) {
  nlohmann::json stages = nlohmann::json::array();
  for (const HeadStage& stage : head_stages(config, head)) {
    stages.push_back({{"linear", stage.linear},
                      {"bias", stage.bias},
                      {"activation", stage.activation ? name_of_activation(*stage.activation) : ""},
                      {"norm", stage.norm},
                      {"dropout", stage.dropout}});
  }
  std::vector<std::string> names;
  for (const EncodingConfig& each : encodings_of(config)) names.push_back(each.type);
  if (!config.rotations.empty()) names = {"rope"};
  std::vector<int64_t> windows(static_cast<size_t>(config.num_hidden_layers));
  for (size_t i = 0; i < config.layers.size(); ++i) windows[i] = config.layers[i].window;
  const HeadReads reads = head_reads(config, head);
  const HeadRow& row = row_of(head);
  const std::string body = body_prefix(config);
  return {{"prefix", encoder_prefix(config, head)},
          {"body", body.substr(0, body.size() - 1)},
          {"reads", reads == HeadReads::kTokens       ? "tokens"
                    : reads == HeadReads::kMean       ? "mean"
                    : reads == HeadReads::kMeanLogits ? "mean_logits"
                    : reads == HeadReads::kLastToken  ? "last"
                                                      : "first"},
          {"kind", row.suffix},
          {"has_logits", row.columns != 0},
          {"pooler", pooler_name(config, head)},
          {"stages", stages},
          {"layers", config.num_hidden_layers},
          {"shared_layers", config.block.shared},
          {"heads", config.num_attention_heads},
          {"key_heads", config.key_heads()},
          {"hidden_size", config.hidden_size},
          {"max_position_embeddings", config.max_position_embeddings},
          {"position_encoding", fmt::format("{}", fmt::join(names, "+"))},
          {"padding_id", config.positions.padding_id},
          {"has_distances", config.positions.relative != PositionSpec::Relative::kNone},
          {"windows", windows},
          {"pre_norm", config.block.pre_norm},
          {"embedding_norm", config.embedding_norm},
          {"final_norm", config.final_norm},
          {"pad_token_id", config.pad_token_id},
          {"embedding_scale", config.embedding_scale},
          {"dropped_id", config.dropped_id},
          {"activation", name_of_activation(config.hidden_act)},
          {"norm", config.block.norm == NormKind::kRms ? "rms" : "layer"},
          {"eps", config.layer_norm_eps},
          {"dropout", config.hidden_dropout_prob},
          {"attention_dropout", config.attention_probs_dropout_prob},
          {"head_dropout", config.classifier_dropout.value_or(config.hidden_dropout_prob)},
          {"drops_first", config.family == Family::kRoFormerV2},
          {"is_decoder", config.is_decoder},
          {"prefix_lm", config.prefix_lm},
          {"cross_attention", config.add_cross_attention},
          {"problem_type", config.problem_type},
          {"num_labels", config.num_labels},
          {"draws_positions", config.training_positions != TrainingPositions{}},
          {"linear_attention",
           config.attention.type == "softmax" ? nlohmann::json() : nlohmann::json::parse(config.attention.options)}};
}

using Tensors = std::vector<at::Tensor>;

struct ScriptModel : torch::CustomClassHolder {
  explicit ScriptModel(std::shared_ptr<Model> given) : model(std::move(given)), tensors(*model, "model") {}

  static c10::intrusive_ptr<ScriptModel> load(const std::string& model_dir, const std::string& head,
                                              const std::string& dtype, bool fresh_head) {
    const FreshHead fresh = fresh_head ? FreshHead::kAllowed : FreshHead::kForbidden;
    return with_file_errors([&] {
      KeptWarnings kept;
      const auto self =
          c10::make_intrusive<ScriptModel>(load_model(model_dir, head_of_name(head), dtype_of_name(dtype), fresh));
      self->warnings = kept.take();
      return self;
    });
  }

  // A new model from the text of a config.json; without a seed, parameters without values.
  static c10::intrusive_ptr<ScriptModel> build(const std::string& config_json, const std::string& head,
                                               std::optional<int64_t> seed) {
    return with_value_errors([&] {
      const ModelConfig config = parse_config(io::parse_json(config_json, "config"));
      const SeedScope scope(static_cast<uint64_t>(seed.value_or(0)));
      std::optional<EmptyParameters> without_values;
      if (!seed) without_values.emplace();
      const std::optional<Head> asked = head_of_name(head);
      return c10::make_intrusive<ScriptModel>(std::make_shared<Model>(config, asked ? *asked : config.head()));
    });
  }

  void save(const Tensors& given, const std::string& model_dir) {
    struct Taken {
      Taken(const ScriptTensors& tensors, const Tensors& given) : tensors(tensors) { tensors.take(given); }
      ~Taken() { tensors.release(); }
      const ScriptTensors& tensors;
    } const taken(tensors, given);
    with_file_errors([&] { save_model(*model, model_dir); });
  }

  // A pass of the model that the trainer uses, with which tests compare Python's.
  TensorDict forward(const Tensors& given, bool training, const TensorDict& input, int64_t num_choices,
                     const MaybeKey& dropout_key) {
    const Output out = with_value_errors([&] {
      const ParameterScope scope = tensors.in_place(given);
      model->train(training);
      return model->forward(input_of(input, dropout_key), num_choices);
    });
    TensorDict named;
    const std::pair<const char*, const at::Tensor*> members[] = {{"hidden", &out.hidden_BTC},
                                                                 {"pooled", &out.pooled_BC},
                                                                 {"logits", &out.logits},
                                                                 {"start_logits", &out.start_logits_BT},
                                                                 {"end_logits", &out.end_logits_BT}};
    for (const auto& [name, member] : members) {
      if (member->defined()) named.insert(name, *member);
    }
    return named;
  }

  // Throws the errors of a call, without computing it; num_choices: of a call that computes a head.
  void check(const TensorDict& inputs, int64_t dtype, std::optional<int64_t> num_choices, int64_t kept_tokens) const {
    with_value_errors([&] {
      const Input input = with_layout_on_cpu(input_of(inputs, {}));
      const auto type = static_cast<at::ScalarType>(dtype);
      if (!num_choices) return check_input(input, model->config(), type, kept_tokens);
      check_call(input, model->config(), model->head(), type, *num_choices, kept_tokens);
    });
  }

  // Positions drawn in training, and real numbers in their place or an empty tensor.
  std::tuple<at::Tensor, at::Tensor> training_positions(const TensorDict& inputs, int64_t seed, int64_t stream) const {
    return with_value_errors([&]() -> std::tuple<at::Tensor, at::Tensor> {
      DropoutKey key = DropoutKey::at(seed, stream);
      const Input drawn =
          with_training_positions(with_layout_on_cpu(input_of(inputs, {})), model->config().training_positions, key);
      const at::Tensor& real = drawn.real_positions_BT;
      return {drawn.positions_BT, real.defined() ? real : at::empty({0}, at::kDouble)};
    });
  }

  // The model's own, or the stored rotation in its place.
  c10::intrusive_ptr<ScriptEncoding> encoding() const {
    // Its functions are not const, because modules of torch are not.
    const std::shared_ptr<Encoding> encoding(model, const_cast<Encoding*>(&model->position_encoding()));
    return c10::make_intrusive<ScriptEncoding>(encoding, model->config().num_hidden_layers,
                                               model->config().rotary_value);
  }

  std::shared_ptr<Model> model;
  ScriptTensors tensors;
  std::vector<std::string> warnings;  // of loading
};

using Self = c10::intrusive_ptr<ScriptModel>;

TORCH_LIBRARY_FRAGMENT(roformer, library) {
  register_encodings(library);
  library.class_<ScriptModel>("Model")
      .def_static("load", &ScriptModel::load)
      .def_static("build", &ScriptModel::build)
      .def_static("head_suffixes",
                  [] {
                    std::vector<std::string> suffixes;
                    for (const HeadRow& row : kHeads) {
                      if (row.head != Head::kPreTraining) suffixes.emplace_back(row.suffix);
                    }
                    return suffixes;
                  })
      .def("check", &ScriptModel::check)
      .def("training_positions", &ScriptModel::training_positions)
      .def("encoding", &ScriptModel::encoding)
      .def("layout", [](const Self& self) { return layout_of(self->model->config(), self->model->head()).dump(); })
      .def("forward", &ScriptModel::forward)
      .def("named_parameters", [](const Self& self) { return self->tensors.parameters(); })
      .def("named_buffers", [](const Self& self) { return self->tensors.buffers(); })
      .def("release", [](const Self& self) { self->tensors.release(); })
      .def("position_table",
           [](const Self& self) {
             const at::Tensor table_MD = self->model->position_table();
             return table_MD.defined() ? std::optional(table_MD) : std::nullopt;
           })
      .def("set_position_table",
           [](const Self& self, const at::Tensor& table_MD) { self->model->set_position_table(table_MD); })
      .def("head", [](const Self& self) { return architecture_of(self->model->config(), self->model->head()); })
      .def("config_json", [](const Self& self) { return to_json(self->model->config()).dump(); })
      .def("warnings", [](const Self& self) { return self->warnings; })
      .def("save", &ScriptModel::save);
  // tokens, longest and bytes of SavedTerms; nothing where no file is needed.
  library.def("bake", [](const std::string& model_dir, std::optional<int64_t> length) -> std::vector<int64_t> {
    const std::optional<SavedTerms> saved = with_file_errors([&] { return save_position_terms(model_dir, length); });
    if (!saved) return {};
    return {saved->tokens, saved->longest, saved->bytes};
  });
}

}  // namespace

}  // namespace rf::nn
