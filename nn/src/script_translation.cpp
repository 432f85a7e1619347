// torch.classes.roformer.TranslationModel: the logits of an encoder-decoder for Python
// (python/roformer_cpp/translation.py).
#include <c10/core/GradMode.h>
#include <torch/custom_class.h>

#include <nlohmann/json.hpp>
#include <string>

#include "rf/nn/translation_model.h"
#include "script_terms.h"

namespace rf::nn {

namespace {

struct ScriptTranslationModel : torch::CustomClassHolder {
  explicit ScriptTranslationModel(std::shared_ptr<TranslationModel> given) : model(std::move(given)) {}

  static c10::intrusive_ptr<ScriptTranslationModel> load(const std::string& model_dir, bool is_double) {
    return with_file_errors([&] {
      return c10::make_intrusive<ScriptTranslationModel>(
          load_translation_model(model_dir, is_double ? at::kDouble : at::kFloat));
    });
  }

  at::Tensor logits(const at::Tensor& source, const std::optional<at::Tensor>& mask, const at::Tensor& target) const {
    return with_value_errors([&] {
      const c10::NoGradGuard no_grad;
      return model->logits(model->forward({source, mask.value_or(at::Tensor()), target}));
    });
  }

  std::shared_ptr<TranslationModel> model;
};

TORCH_LIBRARY_FRAGMENT(roformer, library) {
  library.class_<ScriptTranslationModel>("TranslationModel")
      .def_static("load", &ScriptTranslationModel::load)
      .def("logits", &ScriptTranslationModel::logits)
      .def("config_json", [](const c10::intrusive_ptr<ScriptTranslationModel>& self) {
        return to_json(self->model->config()).dump();
      });
}

}  // namespace

}  // namespace rf::nn
