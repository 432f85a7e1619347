// torch.classes.roformer.Model: a model for Python, with autograd. Parameters are handed out as they are (shared
// storage), so that .grad is visible after a backward pass in Python. rf::Error arrives as RuntimeError with its
// message. torch.classes.roformer.KeyValueCache holds what a causal model has seen.
#include <c10/util/Exception.h>
#include <torch/custom_class.h>

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

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
                                                      {"segments", &input.segments_BT},
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
  void process(const c10::Warning& warning) override { messages_.push_back(warning.msg()); }
  std::vector<std::string> take() { return std::move(messages_); }

 private:
  std::vector<std::string> messages_;
  c10::WarningUtils::WarningHandlerGuard guard_{this};
};

struct ScriptCache : torch::CustomClassHolder {
  KeyValueCache cache;
};
using MaybeCache = std::optional<c10::intrusive_ptr<ScriptCache>>;
KeyValueCache* pointer(const MaybeCache& cache) {
  return cache ? &(*cache)->cache : nullptr;
}

struct ScriptModel : torch::CustomClassHolder {
  ScriptModel(const std::string& model_dir, const std::string& head, const std::string& dtype, bool fresh_head) {
    KeptWarnings kept;
    model = load_model(model_dir, head_of_name(head), dtype_of_name(dtype),
                       fresh_head ? FreshHead::kAllowed : FreshHead::kForbidden);
    warnings = kept.take();
  }
  explicit ScriptModel(std::shared_ptr<Model> model) : model(std::move(model)) {}

  // A new model from the text of a config.json.
  static c10::intrusive_ptr<ScriptModel> build(const std::string& config_json, const std::string& head, int64_t seed) {
    const ModelConfig config = parse_config(io::parse_json(config_json, "config"));
    const SeedScope scope(static_cast<uint64_t>(seed));
    const std::optional<Head> asked = head_of_name(head);
    const auto model = std::make_shared<Model>(config, asked ? *asked : config.head());
    model->eval();
    return c10::make_intrusive<ScriptModel>(model);
  }

  at::Tensor encode(const TensorDict& input, const MaybeCache& cache, const MaybeKey& dropout_key) {
    return model->encode(input_of(input, dropout_key), pointer(cache));
  }

  TensorDict forward(const TensorDict& input, int64_t num_choices, const MaybeCache& cache,
                     const MaybeKey& dropout_key) {
    const Output out = model->forward(input_of(input, dropout_key), num_choices, pointer(cache));
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
      .def(torch::init<std::string, std::string, std::string, bool>())
      .def_static("build", &ScriptModel::build)
      .def("encode", &ScriptModel::encode)
      .def("forward", &ScriptModel::forward)
      .def("named_parameters", [](const Self& self) { return named(self->model->named_parameters()); })
      .def("masked_lm_logits",
           [](const Self& self, const at::Tensor& hidden) { return self->model->masked_lm_logits(hidden); })
      .def("head", [](const Self& self) { return architecture_of(self->model->config(), self->model->head()); })
      .def("config_json", [](const Self& self) { return to_json(self->model->config()).dump(); })
      .def("train", [](const Self& self, bool on) { self->model->train(on); })
      .def("is_training", [](const Self& self) { return self->model->is_training(); })
      .def("warnings", [](const Self& self) { return self->warnings; })
      .def("save", [](const Self& self, const std::string& model_dir) { save_model(*self->model, model_dir); });
  // tokens, longest and bytes of SavedTerms; nothing where no file is needed.
  library.def("bake", [](const std::string& model_dir, std::optional<int64_t> length) -> std::vector<int64_t> {
    const std::optional<SavedTerms> saved = save_position_terms(model_dir, length);
    if (!saved) return {};
    return {saved->tokens, saved->longest, saved->bytes};
  });
}

}  // namespace

}  // namespace rf::nn
