// Model directories in and out (R-HF-01, R-HF-03): config.json and safetensors, one file or shards.
// Names and shapes are matched by model/weights.h; this file moves the numbers and checks them.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>

#include "layer_parameters.h"
#include "position.h"
#include "rf/io/files.h"
#include "rf/io/safetensors.h"
#include "rf/io/warning.h"
#include "rf/model/checkpoint_files.h"
#include "rf/model/foreign_models.h"
#include "rf/nn/model.h"
#include "rf/nn/position_terms.h"
#include "stored_tensors.h"

namespace rf::nn {

namespace {

namespace fs = std::filesystem;

// A matrix of files that a model for training has in parts, one below the other, in the whole or in each head.
struct JoinedMatrix {
  std::string name;                // in the names of its weight and its bias
  std::vector<std::string> parts;  // in its place
  std::vector<int64_t> rows;       // of each part
  int64_t heads = 1;               // one after another, with their share of each part
};

// Rows of a joined matrix.
struct PartRows {
  int64_t heads, first, count;  // in each head

  at::Tensor of(const at::Tensor& joined) const {
    return joined.unflatten(0, {heads, -1}).narrow(1, first, count).flatten(0, 1);
  }
};

at::Tensor joined_parts(std::vector<at::Tensor> parts, int64_t heads) {
  for (at::Tensor& part : parts) part = part.unflatten(0, {heads, -1});
  return at::cat(parts, 1).flatten(0, 1);
}

std::vector<JoinedMatrix> joined_matrices(const ModelConfig& config) {
  const BlockSpec block = block_in_files(config);
  std::vector<JoinedMatrix> found;
  if (block.query_value_bias) {
    found.push_back({".attention.self.q_bias", {".attention.self.query.bias"}, {config.query_width()}});
    found.push_back({".attention.self.v_bias", {".attention.self.value.bias"}, {config.key_width()}});
  }
  if (block.fused_qkv != BlockSpec::Fused::kNone) {
    found.push_back({".attention.self.query_key_value.",
                     {".attention.self.query.", ".attention.self.key.", ".attention.self.value."},
                     {config.query_width(), config.key_width(), config.key_width()},
                     block.fused_qkv == BlockSpec::Fused::kHeads ? config.num_attention_heads : 1});
  }
  if (block.fused_gate != BlockSpec::FusedGate::kNone) {
    JoinedMatrix gates{".intermediate.gate_up.",
                       {".intermediate.gate.", ".intermediate.dense."},
                       {config.intermediate_size, config.intermediate_size}};
    if (block.fused_gate == BlockSpec::FusedGate::kUpGate) std::swap(gates.parts[0], gates.parts[1]);
    found.push_back(std::move(gates));
  }
  return found;
}

at::Tensor computed_table(int64_t rows, int64_t dim) {
  const std::vector<float> values = position_table(rows, dim);
  at::Tensor table_MD = at::empty({rows, dim}, at::kFloat);
  if (!values.empty()) std::memcpy(table_MD.data_ptr(), values.data(), values.size() * sizeof(float));
  return table_MD;
}

void load_position_table(Model& model, const at::Tensor& stored_MD, const std::string& dir) {
  if (stored_MD.numel() == 0) return;
  const at::Tensor exact_MD = stored_MD.to(at::kDouble).contiguous();
  const std::span<const double> numbers(exact_MD.const_data_ptr<double>(), static_cast<size_t>(exact_MD.numel()));
  const std::optional<std::string> warning = stored_table_warning(dir, numbers, stored_MD.size(1));
  if (!warning) return;
  TORCH_WARN(*warning);
  model.set_position_table(stored_MD);
}

}  // namespace

std::shared_ptr<Model> load_model(const std::string& model_dir, std::optional<Head> head, at::ScalarType dtype,
                                  FreshHead fresh_head) {
  const io::WarningScope scope([](const std::string& text) { TORCH_WARN(text); });
  const ModelConfig config = load_config(model_dir);
  return load_model(model_dir, config, head ? *head : config.head(), dtype, fresh_head);
}

namespace {

// The learned positions of a BERT have another name in a model of ours. Where the file has one and the model the other:
// the name in the file, and the model's; else empty names.
std::pair<std::string, std::string> renamed_positions(const ModelConfig& config, Head head,
                                                      const std::vector<NamedShape>& file) {
  const bool learned = config.position_encodings.size() == 1 && config.position_encodings[0].type == "learned";
  if (config.family != Family::kBert || !learned || config.is_foreign()) return {};
  const std::string ours = std::string(kEncodingPrefix) + "weight";
  const std::string berts = encoder_prefix(config, head) + kLearnedPositions;
  const bool is_berts = has_berts_positions(config);
  const auto found = std::ranges::find_if(file, [&](const NamedShape& tensor) {
    return is_berts ? tensor.name == ours : tensor.name.ends_with(kLearnedPositions);
  });
  if (found == file.end()) return {};
  return {found->name, is_berts ? berts : ours};
}

// The tensors of a file; some are listed under other names than in the file.
struct ListedTensors {
  std::vector<NamedShape> shapes;
  std::map<std::string, std::string> stored_as;  // listed name -> the file's, where they differ
  std::map<std::string, PartRows> parts;         // listed name -> its rows of a joined matrix

  std::string in_file(const std::string& listed) const {
    const auto found = stored_as.find(listed);
    return found == stored_as.end() ? listed : found->second;
  }
};

// The parts of a matrix that the file joins, one by one.
void list_parts(const ModelConfig& config, Head head, const JoinedMatrix& joined, ListedTensors& list) {
  std::vector<NamedShape> shapes;
  for (NamedShape& tensor : list.shapes) {
    const std::string name = name_in_model(config, head, tensor.name);
    const size_t at = name.find(joined.name);
    const int64_t rows = std::reduce(joined.rows.begin(), joined.rows.end());
    if (at == std::string::npos || tensor.shape.empty() || tensor.shape[0] != rows) {
      shapes.push_back(std::move(tensor));
      continue;
    }
    int64_t first = 0;
    for (size_t i = 0; i < joined.parts.size(); ++i) {
      const std::string listed = std::string(name).replace(at, joined.name.size(), joined.parts[i]);
      tensor.shape[0] = joined.rows[i];
      shapes.push_back({listed, tensor.shape});
      list.stored_as[listed] = tensor.name;
      const int64_t count = joined.rows[i] / joined.heads;
      list.parts[listed] = {joined.heads, first, count};
      first += count;
    }
  }
  list.shapes = std::move(shapes);
}

ListedTensors list_tensors(const CheckpointFiles& checkpoint, const ModelConfig& config, Head head) {
  ListedTensors list{.shapes = checkpoint.shapes(), .stored_as = {}, .parts = {}};
  const auto [in_file_as, positions] = renamed_positions(config, head, list.shapes);
  for (NamedShape& tensor : list.shapes) {
    if (tensor.name != in_file_as) continue;
    tensor.name = positions;
    list.stored_as[positions] = in_file_as;
  }
  for (const JoinedMatrix& joined : joined_matrices(config)) list_parts(config, head, joined, list);
  return list;
}

// The tensors of the encoding, under their names in the model.
void rename_tensors(const ModelConfig& config, Head head, const Encoding& encoding, const WeightMatch& match,
                    ListedTensors& list) {
  for (const auto& [in_model, listed] : renamed_tensors(config, head, encoding)) {
    const std::string& name = match.names.at(listed);
    std::ranges::find(list.shapes, name, &NamedShape::name)->name = in_model;
    list.stored_as[in_model] = list.in_file(name);
  }
}

// Loader rule (b): a tied model whose file has another decoder becomes untied. A tensor that the file stores once is
// then listed twice.
void untie_stored_head(const CheckpointFiles& checkpoint, WeightMatch match, ModelConfig& config, ListedTensors& list) {
  const std::vector<std::string> warnings = add_untied(checkpoint, config, match);
  for (const std::string& warning : warnings) TORCH_WARN(warning);
  if (warnings.empty()) return;
  config.tie_word_embeddings = false;
  for (const char* part : {"weight", "bias"}) {
    const std::string name = std::string("cls.predictions.decoder.") + part, source = tied_source(config, name);
    const bool is_listed = match.names.contains(name) || match.tied_copies.contains(name);
    if (source.empty() || is_listed || checkpoint.tensors().contains(name)) continue;
    const std::string stored = match.names.at(source);
    list.shapes.push_back({name, checkpoint.at(stored).shape});
    list.stored_as[name] = stored;
  }
}

}  // namespace

std::shared_ptr<Model> load_model(const std::string& model_dir, const ModelConfig& given, Head head,
                                  at::ScalarType dtype, FreshHead fresh_head) {
  const c10::NoGradGuard no_grad;
  check_has_module(given);
  const CheckpointFiles checkpoint(model_dir, "load_model");
  if (given.is_foreign())  // first, since its messages name a joined matrix and not its parts
    static_cast<void>(match_weights(given, head, checkpoint.shapes(), fresh_head));
  ModelConfig config = given;
  config.block = apart(config.block);
  ListedTensors list = list_tensors(checkpoint, config, head);
  std::vector<NamedShape> named_by_transformers;
  std::copy_if(list.shapes.begin(), list.shapes.end(), std::back_inserter(named_by_transformers),
               [](const NamedShape& each) { return !is_added_name(each.name); });
  // Checks sizes against the file before allocating memory for them: first the encoder's, then the position encoding's,
  // which are known only once it is made.
  std::optional<EmptyParameters> empty;
  const WeightMatch of_transformers = match_weights(config, head, named_by_transformers, fresh_head);
  if (of_transformers.fresh.empty()) empty.emplace();
  if (config.tie_word_embeddings) untie_stored_head(checkpoint, of_transformers, config, list);
  const auto encoding = make_position_encoding(config);
  rename_tensors(config, head, *encoding, of_transformers, list);
  const auto linear = make_linear_attention(config);
  const std::vector<WeightSpec> specs = model_weight_specs(config, head, *encoding, linear);
  const WeightMatch match = match_weights(config, head, list.shapes, fresh_head, specs);

  auto model = std::make_shared<Model>(config, head, encoding, linear);
  for (at::Tensor& parameter : model->parameters()) parameter.set_data(parameter.to(dtype));
  auto parameters = model->named_parameters(), buffers = model->named_buffers();
  size_t filled = 0;
  for (const WeightSpec& spec : specs) {
    const auto listed = match.names.find(spec.name);
    if (listed == match.names.end()) continue;  // computed or fresh
    const io::TensorView& view = checkpoint.at(list.in_file(listed->second));
    at::Tensor stored = read_tensor(view, spec.role);
    if (const auto part = list.parts.find(listed->second); part != list.parts.end()) stored = part->second.of(stored);
    if (spec.role == WeightRole::kBuffer) {
      load_buffer(buffers[spec.name], stored, view.name);
    } else if (spec.role == WeightRole::kTable) {
      load_position_table(*model, finite_as(stored, dtype, view.name), model_dir);
    } else {
      parameters[spec.name].copy_(finite_as(stored, dtype, view.name));
      ++filled;
    }
  }
  if (empty && filled != parameters.size()) throw std::logic_error("load_model: a parameter has no values");
  model->eval();
  return model;
}

namespace {

ModelConfig stored_config(const Model& model) {
  ModelConfig config = model.config();
  config.architectures = {architecture_of(config, model.head())};
  return config;
}

// The tensors of model.weight_specs() in the form of a file, contiguous; in the model's memory if it has that form.
std::vector<at::Tensor> stored_values(const Model& model) {
  const auto parameters = model.named_parameters(), buffers = model.named_buffers();
  std::vector<at::Tensor> values;
  for (const WeightSpec& spec : model.weight_specs()) {
    if (spec.role == WeightRole::kBuffer) {
      values.push_back(buffers[spec.name].to(at::kCPU).contiguous());
      continue;
    }
    const at::Tensor source = spec.role != WeightRole::kTable    ? parameters[spec.name]
                              : model.position_table().defined() ? model.position_table()
                                                                 : computed_table(spec.shape[0], spec.shape[1]);
    values.push_back(source.detach().to(at::kCPU, at::kFloat).contiguous());
  }
  return values;
}

struct StoredTensors {
  std::vector<WeightSpec> specs;  // with the names of files
  std::vector<at::Tensor> values;
};

void join_parts(const JoinedMatrix& joined, StoredTensors& stored) {
  StoredTensors whole;
  std::map<std::string, std::vector<at::Tensor>> parts;  // by the joined name
  for (size_t i = 0; i < stored.specs.size(); ++i) {
    WeightSpec spec = stored.specs[i];
    at::Tensor value = stored.values[i];
    for (size_t p = 0; p < joined.parts.size(); ++p) {
      const size_t at = spec.name.find(joined.parts[p]);
      if (at == std::string::npos) continue;
      spec.name.replace(at, joined.parts[p].size(), joined.name);
      std::vector<at::Tensor>& all = parts[spec.name];
      all.resize(joined.parts.size());
      all[p] = value;
      break;
    }
    if (const auto found = parts.find(spec.name); found != parts.end()) {
      const std::vector<at::Tensor>& all = found->second;
      if (!std::ranges::all_of(all, &at::Tensor::defined)) continue;
      value = joined_parts(all, joined.heads);
      spec.shape = value.sizes().vec();
    }
    whole.specs.push_back(std::move(spec));
    whole.values.push_back(std::move(value));
  }
  stored = std::move(whole);
}

StoredTensors stored_tensors(const Model& model) {
  StoredTensors stored{model.weight_specs(), stored_values(model)};
  for (const JoinedMatrix& joined : joined_matrices(model.config())) join_parts(joined, stored);
  const auto renamed = renamed_tensors(model.config(), model.head(), model.position_encoding());
  for (WeightSpec& spec : stored.specs) {
    const auto found = std::ranges::find(renamed, spec.name, &std::pair<std::string, std::string>::first);
    if (found != renamed.end()) spec.name = found->second;
    spec.name = file_name(model.config(), model.head(), spec.name);
  }
  for (const auto& [name, values] : stored_frequencies(model.config(), model.head())) {
    stored.specs.push_back({file_name(model.config(), model.head(), name), {std::ssize(values)}, WeightRole::kBuffer});
    stored.values.push_back(at::tensor(values));
  }
  return stored;
}

}  // namespace

void save_model(const Model& model, const std::string& model_dir, StoredTerms terms) {
  const StoredTensors stored = stored_tensors(model);
  write_tensors(stored.specs, stored.values, model_dir);
  save_config(stored_config(model), model_dir);
  if (terms == StoredTerms::kWritten) {
    save_position_terms(model, model_dir);
  } else {
    remove_position_terms(model_dir);
  }
}

void ModelSnapshot::take(const Model& model) {
  const StoredTensors stored = stored_tensors(model);
  take(rf::to_json(stored_config(model)).dump(2), stored.specs, stored.values);
}

void ModelSnapshot::take(std::string config, const std::vector<WeightSpec>& specs,
                         const std::vector<at::Tensor>& values) {
  const c10::NoGradGuard no_grad;
  config_ = std::move(config);
  specs_ = specs;
  values_.resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (!values_[i].defined()) values_[i] = at::empty_like(values[i]);
    values_[i].copy_(values[i]);
  }
}

void ModelSnapshot::write(const std::string& model_dir) const {
  write_tensors(specs_, values_, model_dir);
  io::write_file(model_dir + "/config.json", config_ + "\n");
  remove_position_terms(model_dir);
}

}  // namespace rf::nn
