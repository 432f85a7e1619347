// torch.classes.roformer.Model: a RoFormer for Python, with autograd. Parameters are handed out as they are (shared
// storage), so that .grad is visible after a backward pass in Python. rf::Error arrives as RuntimeError with its
// message.
#include <torch/custom_class.h>

#include <nlohmann/json.hpp>

#include "rf/io/error.h"
#include "rf/nn/model.h"

namespace rf::nn {

namespace {

at::ScalarType dtype_of_name(const std::string& name) {
  if (name == "float32") return at::kFloat;
  if (name == "float64") return at::kDouble;
  fail("load_model", "dtype must be float32 or float64, got {}", name);
}

using MaybeTensor = std::optional<at::Tensor>;

Input input_of(const at::Tensor& ids, const MaybeTensor& mask, const MaybeTensor& types, const MaybeTensor& segments,
               const MaybeTensor& positions) {
  return {.ids_BT = ids,
          .mask_BT = mask.value_or(at::Tensor()),
          .types_BT = types.value_or(at::Tensor()),
          .segments_BT = segments.value_or(at::Tensor()),
          .positions_BT = positions.value_or(at::Tensor())};
}

struct ScriptModel : torch::CustomClassHolder {
  // head: a class name of transformers, or "" for the one that config.json names.
  ScriptModel(const std::string& model_dir, const std::string& head, const std::string& dtype, bool fresh_head)
      : model(load_model(model_dir, head.empty() ? std::nullopt : std::optional<Head>(head_of_architecture(head)),
                         dtype_of_name(dtype), fresh_head ? FreshHead::kAllowed : FreshHead::kForbidden)) {}

  at::Tensor encode(const at::Tensor& ids, const MaybeTensor& mask, const MaybeTensor& types,
                    const MaybeTensor& segments, const MaybeTensor& positions) {
    return model->encode(input_of(ids, mask, types, segments, positions));
  }

  c10::Dict<std::string, at::Tensor> forward(const at::Tensor& ids, const MaybeTensor& mask, const MaybeTensor& types,
                                             const MaybeTensor& segments, const MaybeTensor& positions,
                                             int64_t num_choices) {
    const Output out = model->forward(input_of(ids, mask, types, segments, positions), num_choices);
    c10::Dict<std::string, at::Tensor> named;
    named.insert("hidden", out.hidden_BTC);
    if (out.logits.defined()) named.insert("logits", out.logits);
    if (out.start_logits_BT.defined()) {
      named.insert("start_logits", out.start_logits_BT);
      named.insert("end_logits", out.end_logits_BT);
    }
    return named;
  }

  c10::Dict<std::string, at::Tensor> named_parameters() {
    c10::Dict<std::string, at::Tensor> named;
    for (const auto& item : model->named_parameters()) named.insert(item.key(), item.value());
    return named;
  }

  std::shared_ptr<Model> model;
};

TORCH_LIBRARY_FRAGMENT(roformer, library) {
  library.class_<ScriptModel>("Model")
      .def(torch::init<std::string, std::string, std::string, bool>())
      .def("encode", &ScriptModel::encode)
      .def("forward", &ScriptModel::forward)
      .def("named_parameters", &ScriptModel::named_parameters)
      .def("masked_lm_logits", [](const c10::intrusive_ptr<ScriptModel>& self,
                                  const at::Tensor& hidden) { return self->model->masked_lm_logits(hidden); })
      .def("head",
           [](const c10::intrusive_ptr<ScriptModel>& self) { return architecture_of_head(self->model->head()); })
      .def("config_json",
           [](const c10::intrusive_ptr<ScriptModel>& self) { return to_json(self->model->config()).dump(); })
      .def("train", [](const c10::intrusive_ptr<ScriptModel>& self, bool on) { self->model->train(on); })
      .def("set_dropout_key",
           [](const c10::intrusive_ptr<ScriptModel>& self, int64_t seed, int64_t step) {
             self->model->set_dropout_key({static_cast<uint64_t>(seed), static_cast<uint64_t>(step)});
           })
      .def("save", [](const c10::intrusive_ptr<ScriptModel>& self, const std::string& model_dir) {
        save_model(*self->model, model_dir);
      });
}

}  // namespace

}  // namespace rf::nn
