// Finds the checkpoints of a run, and averages them (rf/model/run_checkpoints.h).
#include "rf/model/run_checkpoints.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/printable.h"
#include "rf/io/safetensors.h"
#include "rf/model/checkpoint_files.h"

namespace rf {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = "checkpoint-";

constexpr const char* kAverage = "average";

// Files that are not copied: weights in any number of files, and the training state of one step.
bool is_of_weights_or_training(const std::string& name) {
  return name.ends_with(".safetensors") || name == "model.safetensors.index.json" || name == "state.json";
}

void check_same_tensor(const io::TensorView& first, const CheckpointFiles& files, const std::string& dir) {
  const auto found = files.tensors().find(first.name);
  if (found == files.tensors().end())
    fail(kAverage, "every directory must have {}, got none in {}", io::printable(first.name), dir);
  const io::TensorView& view = *found->second;
  if (view.shape != first.shape || view.dtype != first.dtype) {
    fail(kAverage, "{} must have the shape [{}] and the dtype of the first directory, got [{}] in {}",
         io::printable(first.name), fmt::join(first.shape, ", "), fmt::join(view.shape, ", "), dir);
  }
}

// The bytes of the mean tensor.
std::vector<std::byte> mean_of(const io::TensorView& first,
                               const std::vector<std::unique_ptr<CheckpointFiles>>& files) {
  std::vector<std::byte> bytes(first.data.begin(), first.data.end());
  if (first.dtype == io::DType::kI64) {
    for (const auto& each : files) {
      const io::TensorView& view = each->at(first.name);
      if (!std::equal(view.data.begin(), view.data.end(), first.data.begin())) {
        fail(kAverage, "{} holds integers, which must be equal in every directory, got other values",
             io::printable(first.name));
      }
    }
    return bytes;
  }
  if (first.dtype != io::DType::kF32)
    fail(kAverage, "weights must be F32, got {} for {}", io::safetensors_name(first.dtype), io::printable(first.name));
  const size_t count = bytes.size() / sizeof(float);
  std::vector<double> sums(count, 0.0);
  std::vector<float> values(count);
  for (const auto& each : files) {
    std::memcpy(values.data(), each->at(first.name).data.data(), bytes.size());
    for (size_t i = 0; i < count; ++i) sums[i] += values[i];
  }
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(sums[i] / static_cast<double>(files.size()));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

}  // namespace

std::string checkpoint_path(const std::string& run_dir, int64_t step) {
  return fmt::format("{}/{}{}", run_dir, kPrefix, step);
}

std::vector<int64_t> checkpoint_steps(const std::string& run_dir) {
  std::vector<int64_t> steps;
  for (const fs::directory_entry& entry : fs::directory_iterator(run_dir)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kPrefix)) continue;
    int64_t step = 0;
    const char* end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
    if (error == std::errc() && stop == end) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<std::string> newest_checkpoint(const std::string& run_dir) {
  const std::vector<int64_t> steps = checkpoint_steps(run_dir);
  if (steps.empty()) return std::nullopt;
  return checkpoint_path(run_dir, steps.back());
}

std::string model_of_run(const std::string& dir, const std::function<void(const std::string&)>& note) {
  const auto has = [&](const char* name) { return io::has_file(fmt::format("{}/{}", dir, name)); };
  if (has("config.json") || !has("run.json")) return dir;
  const std::optional<std::string> checkpoint = newest_checkpoint(dir);
  if (!checkpoint) fail("model", "a run must have a model or a checkpoint, got none yet in {}", dir);
  note(fmt::format("{} has not finished: its newest checkpoint is used, {}", dir, *checkpoint));
  return *checkpoint;
}

void average_checkpoints(const std::vector<std::string>& model_dirs, const std::string& output_dir) {
  if (model_dirs.empty()) fail(kAverage, "there must be at least one model directory, got none");
  const fs::path path = fs::path(output_dir).lexically_normal();
  const fs::path output = path.has_filename() ? path : path.parent_path();  // without a trailing slash
  if (fs::exists(output)) fail(kAverage, "the output must not exist, got {}", output_dir);
  const nlohmann::json config = io::read_json(model_dirs[0] + "/config.json");
  std::vector<std::unique_ptr<CheckpointFiles>> files;
  for (const std::string& dir : model_dirs) {
    if (io::read_json(dir + "/config.json") != config)
      fail(kAverage, "all directories must have the config.json of {}, got another one in {}", model_dirs[0], dir);
    files.push_back(std::make_unique<CheckpointFiles>(dir, kAverage));
    if (files.back()->tensors().size() != files[0]->tensors().size()) {
      fail(kAverage, "all directories must have the {} tensors of {}, got {} in {}", files[0]->tensors().size(),
           model_dirs[0], files.back()->tensors().size(), dir);
    }
    for (const auto& [name, view] : files[0]->tensors()) check_same_tensor(*view, *files.back(), dir);
  }
  std::vector<std::vector<std::byte>> means;
  std::vector<io::TensorView> views;
  for (const auto& [name, view] : files[0]->tensors()) {
    means.push_back(mean_of(*view, files));
    views.push_back({name, view->dtype, view->shape, means.back()});
  }
  const std::string unfinished = output.string() + ".tmp";
  fs::remove_all(unfinished);
  fs::create_directories(unfinished);
  for (const fs::directory_entry& entry : fs::directory_iterator(model_dirs[0])) {
    const std::string name = entry.path().filename();
    if (entry.is_regular_file() && !is_of_weights_or_training(name))
      fs::copy_file(entry.path(), fs::path(unfinished) / name);
  }
  io::write_safetensors(unfinished + "/model.safetensors", views, {{"format", "pt"}});
  fs::rename(unfinished, output);
}

}  // namespace rf
