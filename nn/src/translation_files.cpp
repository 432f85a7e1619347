// Model directories of encoder-decoders (rf/nn/translation_model.h). Marian's files may contain copies of the shared
// embedding and its table of sinusoids; these must equal the originals.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "layer_parameters.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/printable.h"
#include "rf/io/warning.h"
#include "rf/model/checkpoint_files.h"
#include "rf/model/rotary_rows.h"
#include "rf/nn/model.h"
#include "rf/nn/translation_model.h"
#include "rotary_rows.h"
#include "stored_tensors.h"

namespace rf::nn {

namespace {

constexpr std::array kEmbeddingNames = {kSharedEmbedding, "model.encoder.embed_tokens.weight",
                                        "model.decoder.embed_tokens.weight", "lm_head.weight"};
constexpr std::array kSinusoidNames = {"model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"};
constexpr double kLargestSinusoidDifference = 1e-6;

// Finds the shared embedding under any of its names in a file; all copies must be equal.
const io::TensorView& embedding_of(const CheckpointFiles& files) {
  const io::TensorView* first = nullptr;
  for (const char* name : kEmbeddingNames) {
    const auto found = files.tensors().find(name);
    if (found == files.tensors().end()) continue;
    if (first == nullptr) {
      first = found->second;
    } else if (!read_tensor(*first).equal(read_tensor(*found->second))) {
      fail("load_model", "{} must equal {}, since source, target and output share one matrix, got other values", name,
           first->name);
    }
  }
  if (first == nullptr) fail("load_model", "{} must be in the file, got no tensor of this name", kSharedEmbedding);
  return *first;
}

void check_sinusoids(const CheckpointFiles& files, const TranslationConfig& config) {
  for (const char* name : kSinusoidNames) {
    const auto found = files.tensors().find(name);
    if (found == files.tensors().end()) continue;
    const at::Tensor stored_MC = read_tensor(*found->second).to(at::kDouble);
    const at::Tensor positions = at::arange(stored_MC.size(0), at::kLong).unsqueeze(0);
    const at::Tensor computed_MC = sinusoid(positions, config.d_model, SinusoidLayout::kHalf, at::kDouble)[0];
    const bool fits = model_type(config) == "marian" && stored_MC.sizes() == computed_MC.sizes();
    if (!fits || (stored_MC - computed_MC).abs().max().item<double>() > kLargestSinusoidDifference) {
      fail("load_model", "{} must be the sinusoids of Marian, got other values", name);
    }
  }
}

bool is_read_elsewhere(const std::string& name) {
  const auto is_name = [&](const char* each) { return name == each; };
  return std::any_of(kEmbeddingNames.begin(), kEmbeddingNames.end(), is_name) ||
         std::any_of(kSinusoidNames.begin(), kSinusoidNames.end(), is_name);
}

// The tensor of a weight; nullptr for a buffer that the file lacks.
const io::TensorView* stored_weight(const CheckpointFiles& files, const WeightSpec& spec, const std::string& type) {
  const auto found = files.tensors().find(spec.name);
  const io::TensorView* view = spec.name == kSharedEmbedding    ? &embedding_of(files)
                               : found != files.tensors().end() ? found->second
                                                                : nullptr;
  if (view == nullptr && spec.role != WeightRole::kBuffer) {
    fail("weights", "all tensors of a {} must be in the file, got no {}", type, spec.name);
  }
  if (view != nullptr && view->shape != spec.shape) {
    fail("weights", "{} must have the shape [{}] by the config, got [{}]", io::printable(view->name),
         fmt::join(spec.shape, ", "), fmt::join(view->shape, ", "));
  }
  return view;
}

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
  const TranslationConfig config = load_translation_config(model_dir);
  const CheckpointFiles files(model_dir, "load_model");
  // Checks sizes against the file before allocating memory.
  for (const WeightSpec& spec : rf::weight_specs(config)) stored_weight(files, spec, model_type(config));
  check_sinusoids(files, config);
  const EmptyParameters empty;
  auto model = std::make_shared<TranslationModel>(config);
  for (at::Tensor& parameter : model->parameters()) parameter.set_data(parameter.to(dtype));
  auto parameters = model->named_parameters(), buffers = model->named_buffers();
  for (at::Tensor& buffer : model->buffers()) buffer.set_data(at::zeros_like(buffer, buffer.options().dtype(dtype)));
  std::set<std::string> known;
  for (const WeightSpec& spec : model->weight_specs()) {
    known.insert(spec.name);
    const io::TensorView* view = stored_weight(files, spec, model_type(config));
    if (spec.role != WeightRole::kBuffer) {
      parameters[spec.name].copy_(finite_as(read_tensor(*view), dtype, view->name));
    } else if (view != nullptr) {
      load_buffer(buffers[spec.name], read_tensor(*view), spec.name);
    }
  }
  for (const auto& [name, view] : files.tensors()) {
    if (!known.contains(name) && !is_read_elsewhere(name)) {
      fail("weights", "tensors must be those of a {}, got {}", model_type(config), io::printable(name));
    }
  }
  model->eval();
  return model;
}

void save_translation_model(const TranslationModel& model, const std::string& model_dir) {
  write_tensors(model.weight_specs(), stored_translation_values(model), model_dir);
  io::write_file(model_dir + "/config.json", to_json(model.config()).dump(2) + "\n");
}

void ModelSnapshot::take(const TranslationModel& model) {
  take(to_json(model.config()).dump(2), model.weight_specs(), stored_translation_values(model));
}

}  // namespace rf::nn
