// Model directories of encoder-decoders (rf/nn/translation_model.h).
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "layer_parameters.h"
#include "rf/io/files.h"
#include "rf/io/warning.h"
#include "rf/model/translation_files.h"
#include "rf/nn/model.h"
#include "rf/nn/position_terms.h"
#include "rf/nn/translation_model.h"
#include "stored_tensors.h"

namespace rf::nn {

namespace {

std::vector<at::Tensor> stored_translation_values(const TranslationModel& model) {
  const auto parameters = model.named_parameters(), buffers = model.named_buffers();
  std::vector<at::Tensor> values;
  for (const WeightSpec& spec : model.weight_specs()) {
    const at::Tensor& value = spec.role == WeightRole::kBuffer ? buffers[spec.name] : parameters[spec.name];
    values.push_back(value.detach().to(at::kCPU, at::kFloat).contiguous());
  }
  return values;
}

}  // namespace

std::shared_ptr<TranslationModel> load_translation_model(const std::string& model_dir, at::ScalarType dtype) {
  const c10::NoGradGuard no_grad;
  const io::WarningScope scope([](const std::string& text) { TORCH_WARN(text); });
  const ModelConfig config = load_translation_config(model_dir);
  const CheckpointFiles files(model_dir, "load_model");
  // Checks sizes against the file before allocating memory.
  translation_tensors(files, config, translation_weight_specs(config), EncodingTensors::kAny);
  const EmptyParameters empty;
  auto model = std::make_shared<TranslationModel>(config);
  for (at::Tensor& parameter : model->parameters()) parameter.set_data(parameter.to(dtype));
  auto parameters = model->named_parameters(), buffers = model->named_buffers();
  for (at::Tensor& buffer : model->buffers()) buffer.set_data(at::zeros_like(buffer, buffer.options().dtype(dtype)));
  for (const auto& [name, view] :
       translation_tensors(files, config, model->weight_specs(), EncodingTensors::kOfSpecs)) {
    if (at::Tensor* const buffer = buffers.find(name)) {
      load_buffer(*buffer, read_tensor(*view), name);
    } else {
      parameters[name].copy_(finite_as(read_tensor(*view), dtype, view->name));
    }
  }
  model->eval();
  return model;
}

void save_translation_model(const TranslationModel& model, const std::string& model_dir) {
  write_tensors(model.weight_specs(), stored_translation_values(model), model_dir);
  io::write_file(model_dir + "/config.json", to_json(model.config()).dump(2) + "\n");
  save_position_terms(model, model_dir);
}

void ModelSnapshot::take(const TranslationModel& model) {
  take(to_json(model.config()).dump(2), model.weight_specs(), stored_translation_values(model));
}

}  // namespace rf::nn
