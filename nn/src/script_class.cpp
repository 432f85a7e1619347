// torch.classes.roformer.Model: a model for Python (python/roformer_cpp/model.py), which gives parameters and buffers
// to each call (script_terms.h). torch.classes.roformer.KeyValueCache holds what a causal model has seen.
#include <c10/util/Exception.h>
#include <torch/custom_class.h>

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "layer_parameters.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/printable.h"
#include "rf/nn/model.h"
#include "rf/nn/position_terms.h"
#include "rf/nn/seed_scope.h"
#include "script_terms.h"

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

struct ScriptCache : torch::CustomClassHolder {
  KeyValueCache cache;
};
using MaybeCache = std::optional<c10::intrusive_ptr<ScriptCache>>;
KeyValueCache* pointer(const MaybeCache& cache) { return cache ? &(*cache)->cache : nullptr; }

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

  // The module as it computes in a call: with the tensors that Python keeps, and in its mode.
  ParameterScope begin(const Tensors& given, bool training) const {
    model->train(training);
    return tensors.in_place(given);
  }

  at::Tensor encode(const Tensors& given, bool training, const TensorDict& input, const MaybeCache& cache,
                    const MaybeKey& dropout_key) {
    return with_value_errors([&] {
      const ParameterScope scope = begin(given, training);
      return model->encode(input_of(input, dropout_key), pointer(cache));
    });
  }

  at::Tensor masked_lm_logits(const Tensors& given, const at::Tensor& hidden) {
    return with_value_errors([&] {
      const ParameterScope scope = begin(given, false);
      return model->masked_lm_logits(hidden);
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

  TensorDict forward(const Tensors& given, bool training, const TensorDict& input, int64_t num_choices,
                     const MaybeCache& cache, const MaybeKey& dropout_key) {
    const Output out = with_value_errors([&] {
      const ParameterScope scope = begin(given, training);
      return model->forward(input_of(input, dropout_key), num_choices, pointer(cache));
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

  std::shared_ptr<Model> model;
  ScriptTensors tensors;
  std::vector<std::string> warnings;  // of loading
};

using Self = c10::intrusive_ptr<ScriptModel>;

TORCH_LIBRARY_FRAGMENT(roformer, library) {
  library.class_<ScriptCache>("KeyValueCache")
      .def(torch::init<>())
      .def("tokens", [](const c10::intrusive_ptr<ScriptCache>& self) { return self->cache.tokens; })
      .def("__repr__", [](const c10::intrusive_ptr<ScriptCache>& self) {
        return fmt::format("KeyValueCache({} tokens of {} rows, {} layers)", self->cache.tokens, self->cache.batch,
                           self->cache.layers.size());
      });
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
      .def("encode", &ScriptModel::encode)
      .def("forward", &ScriptModel::forward)
      .def("named_parameters", [](const Self& self) { return self->tensors.parameters(); })
      .def("named_buffers", [](const Self& self) { return self->tensors.buffers(); })
      .def("release", [](const Self& self) { self->tensors.release(); })
      .def("masked_lm_logits", &ScriptModel::masked_lm_logits)
      .def("position_table",
           [](const Self& self) {
             const at::Tensor table_MD = self->model->position_table();
             return table_MD.defined() ? std::optional(table_MD) : std::nullopt;
           })
      .def("set_position_table",
           [](const Self& self, const at::Tensor& table_MD) { self->model->set_position_table(table_MD); })
      .def("head", [](const Self& self) { return architecture_of(self->model->config(), self->model->head()); })
      .def("outputs",
           [](const Self& self) {
             c10::Dict<std::string, std::vector<std::string>> outputs;
             for (const HeadOutput& each : head_outputs(self->model->config(), self->model->head()))
               outputs.insert(each.name, each.extents);
             return outputs;
           })
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
