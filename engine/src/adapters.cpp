// Adapters for tasks (see the header).
#include "adapters.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "rf/io/error.h"
#include "rf/io/half.h"
#include "rf/io/printable.h"
#include "rf/io/safetensors.h"
#include "weights.h"

namespace rf::engine {

namespace {

constexpr const char* kAdaptersWhere = "load_model";
constexpr std::string_view kOriginal = ".parametrizations.weight.original";
constexpr const char *kDown = ".parametrizations.weight.0.lora_A", *kUp = ".parametrizations.weight.0.lora_B";

// Its number; -1 for "".
int64_t task_number(const ModelConfig& config, const std::string& task) {
  if (task.empty()) return -1;
  if (!config.adapters)
    fail<ArgumentError>(kAdaptersWhere, "task must be absent for a model without adapters, got {}",
                        io::printable(task));
  std::vector<std::string> names;
  for (const AdapterSpec::Adapter& each : config.adapters->tasks) names.push_back(each.task);
  const auto found = std::ranges::find(names, task);
  if (found == names.end())
    fail<ArgumentError>(kAdaptersWhere, "task must be {}, got {}", fmt::join(names, ", "), io::printable(task));
  return found - names.begin();
}

const io::TensorView& tensor_of(const CheckpointFiles& files, const std::string& name,
                                const std::vector<int64_t>& shape) {
  const auto found = files.tensors().find(name);
  if (found == files.tensors().end()) fail(kAdaptersWhere, "adapters must have {}, got none", io::printable(name));
  const io::TensorView& view = *found->second;
  if (view.shape != shape) {
    fail(kAdaptersWhere, "{} must have the shape [{}] by the config, got [{}]", io::printable(name),
         fmt::join(shape, ", "), fmt::join(view.shape, ", "));
  }
  return view;
}

// The part of a task.
std::vector<float> part_of(const io::TensorView& view, int64_t task) {
  const int64_t count = view.shape[1] * view.shape[2];
  return adapter_values(view, task * count, count);
}

}  // namespace

std::vector<float> adapter_values(const io::TensorView& view, int64_t begin, int64_t count) {
  if (!io::is_floating(view.dtype)) {
    fail(kAdaptersWhere, "adapters must be F16, BF16, F32 or F64, got {} for {}", io::safetensors_name(view.dtype),
         io::printable(view.name));
  }
  std::vector<float> values(static_cast<size_t>(count));
  read_elements(view, begin, count, values.data());
  const auto bad = std::ranges::find_if(values, [](float x) { return !std::isfinite(x); });
  if (bad != values.end()) fail(kAdaptersWhere, "adapters must be finite, got {} in {}", *bad, view.name);
  return values;
}

void LowRank::add_row(int64_t row, float* to) const {
  const auto columns = std::ssize(right) / rank;
  for (int64_t r = 0; r < rank; ++r) {
    const float factor = left[row * rank + r];
    for (int64_t i = 0; i < columns; ++i) to[i] += factor * right[r * columns + i];
  }
}

Adapters::Adapters(std::shared_ptr<const CheckpointFiles> files, const ModelConfig& config, Head head,
                   const AdapterChoice& choice)
    : files_(std::move(files)) {
  const int64_t number = task_number(config, choice.task);
  for (NamedShape& each : files_->shapes()) {
    if (is_added_name(each.name)) continue;
    const bool low_rank = each.name.ends_with(kDown) || each.name.ends_with(kUp);
    if (!config.adapters || !(low_rank || each.name.ends_with(kOriginal))) {
      shapes_.push_back(std::move(each));
    } else if (!low_rank) {
      add(config, each.name, number);
    } else if (!files_->tensors().contains(each.name.substr(0, each.name.find(".0.lora_")) + ".original")) {
      fail(kAdaptersWhere, "adapters must have the matrix that they change, got {} alone", io::printable(each.name));
    }
  }
  if (number >= 0 && changes_.empty())
    fail(kAdaptersWhere, "the file must have the adapters of {}, got none", io::printable(choice.task));
  if (!choice.folder.empty()) add_folder(config, head, choice.folder);
}

void Adapters::add(const ModelConfig& config, const std::string& matrix, int64_t task) {
  const std::string module = matrix.substr(0, matrix.size() - kOriginal.size()), name = module + ".weight";
  const io::TensorView& original = files_->at(matrix);
  const std::vector<int64_t>& shape = original.shape;
  shapes_.push_back({name, shape});
  views_.emplace(name, &original);
  if (shape.size() != 2) return;  // which is refused as another shape
  const AdapterSpec& spec = *config.adapters;
  const auto tasks = std::ssize(spec.tasks);
  const std::vector<int64_t> left = {tasks, shape[0], spec.rank}, right = {tasks, spec.rank, shape[1]};
  const bool of_rows = name.find("embeddings.") != std::string::npos;
  const io::TensorView& down = tensor_of(*files_, module + kDown, of_rows ? left : right);
  const io::TensorView& up = tensor_of(*files_, module + kUp, of_rows ? right : left);
  if (task < 0) return;
  LowRank& change = changes_[name];
  change = {.rank = spec.rank, .left = part_of(of_rows ? down : up, task), .right = part_of(of_rows ? up : down, task)};
  for (float& each : change.left) each = static_cast<float>(each * spec.scale);
}

const io::TensorView& Adapters::at(const std::string& name) const {
  const auto found = views_.find(name);
  return found == views_.end() ? files_->at(name) : *found->second;
}

const LowRank* Adapters::change_of(const std::string& name) const {
  const auto found = changes_.find(name);
  return found == changes_.end() ? nullptr : &found->second;
}

}  // namespace rf::engine
