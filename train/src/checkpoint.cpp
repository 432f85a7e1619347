// The files of checkpoints, and reading them (checkpoint.h).
#include "checkpoint.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <vector>

#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/safetensors.h"
#include "rf/model/run_checkpoints.h"
#include "rf/text/tokenizer.h"
#include "run_file.h"

namespace rf::train {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemporaryPrefix = ".checkpoint-";
constexpr int kStateVersion = 2;

// The files of moments of a checkpoint, complete.
std::vector<std::string> moments_files(const std::string& dir) {
  static const std::regex numbered(R"(optimizer-[0-9]+-of-([0-9]+)\.safetensors)");
  int64_t ranks = 1;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir)) {
    std::smatch match;
    const std::string name = entry.path().filename();
    if (std::regex_match(name, match, numbered)) ranks = std::stoll(match[1]);
  }
  std::vector<std::string> files;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    files.push_back(moments_file(dir, rank, ranks));
    if (!io::has_file(files.back())) {
      fail("resume",
           "{} must have the moments of all {} ranks, got no {}; remove it to continue from the previous checkpoint",
           dir, ranks, fs::path(files.back()).filename().string());
    }
  }
  return files;
}

// Numbers of a moment in a file.
struct StoredPart {
  int64_t begin = 0;
  std::span<const float> values;
};

// Removes a directory; if the process is killed meanwhile, it leaves a temporary directory, never an incomplete
// checkpoint.
void drop_checkpoint(const std::string& run_dir, int64_t step) {
  const std::string temporary = unfinished_path(run_dir, step);
  fs::rename(checkpoint_path(run_dir, step), temporary);
  fs::remove_all(temporary);
}

// Whether a signal caused it, at a step that the run file does not name.
bool is_extra(const std::string& checkpoint) {
  const std::string path = checkpoint + "/state.json";
  if (!io::has_file(path)) return false;
  const auto state = nlohmann::json::parse(io::read_file(path), nullptr, /*allow_exceptions=*/false);
  return state.is_object() && state.contains(kInterrupted);
}

}  // namespace

std::string unfinished_path(const std::string& run_dir, int64_t step) {
  return fmt::format("{}/{}{}.tmp", run_dir, kTemporaryPrefix, step);
}

std::string moments_file(const std::string& checkpoint, int64_t rank, int64_t ranks) {
  if (ranks == 1) return checkpoint + "/optimizer.safetensors";
  return fmt::format("{}/optimizer-{:05}-of-{:05}.safetensors", checkpoint, rank + 1, ranks);
}

bool is_temporary(const std::string& name) {
  static const std::regex file(R"(.+\.tmp\.[0-9]+\.[0-9]+)");  // io::AtomicFile's names
  return (name.starts_with(kTemporaryPrefix) && name.ends_with(".tmp")) || std::regex_match(name, file);
}

void remove_temporaries(const std::string& run_dir) {
  std::vector<fs::path> stale;
  for (const fs::directory_entry& entry : fs::directory_iterator(run_dir)) {
    if (is_temporary(entry.path().filename())) stale.push_back(entry.path());
  }
  for (const fs::path& path : stale) fs::remove_all(path);
}

void save_state(const std::string& checkpoint, nlohmann::json state) {
  state["version"] = kStateVersion;
  io::write_file(checkpoint + "/state.json", state.dump(2) + "\n");
}

void drop_checkpoints(const std::string& run_dir, int64_t keep) {
  std::vector<int64_t> steps = checkpoint_steps(run_dir);
  const int64_t newest = steps.empty() ? 0 : steps.back();
  std::erase_if(steps, [&](int64_t step) {
    if (step == newest || !is_extra(checkpoint_path(run_dir, step))) return false;
    drop_checkpoint(run_dir, step);
    return true;
  });
  for (size_t i = 0; i + static_cast<size_t>(keep) < steps.size(); ++i) drop_checkpoint(run_dir, steps[i]);
}

void load_state(const std::string& checkpoint, const std::function<void(io::StrictObject&)>& parse) {
  const std::string path = checkpoint + "/state.json";
  const nlohmann::json json = io::read_json(path);
  try {
    io::StrictObject state(json, "state.json", "");
    state.require({"version"});
    const int64_t version = state.integer("version", 0, 0, INT64_MAX);
    if (version != kStateVersion) fail("state.json", "version must be {}, got {}", kStateVersion, version);
    parse(state);
  } catch (const Error& error) {
    fail("resume", "{} must be undamaged, got: {}; remove {} to continue from the previous checkpoint", path,
         error.what(), checkpoint);
  }
}

nlohmann::json to_json(const TrainState& state) {
  return {{"step", state.step},
          {"stage", state.stage},
          {"micro_batches", state.micro_batches},
          {"updates", state.updates},
          {"cursor", {{"epoch", state.cursor.epoch}, {"row", state.cursor.row}}},
          {"interval",
           {{"loss_sum", state.interval.loss_sum},
            {"predicted_tokens", state.interval.predicted_tokens},
            {"real_tokens", state.interval.real_tokens},
            {"pair_loss_sum", state.interval.pair_loss_sum},
            {"correct_pairs", state.interval.correct_pairs},
            {"pairs", state.interval.pairs}}},
          {"train_loss", state.train_loss},
          {"evaluation", to_json(state.evaluation)},
          {"run", state.run},
          {"data", state.data},
          {"platform", state.platform}};
}

TrainState train_state(io::StrictObject& json) {
  const auto count = [](io::StrictObject& object, const char* key) {
    object.require({key});
    return object.integer(key, 0, 0, INT64_MAX);
  };
  const auto number = [&](io::StrictObject& object, const char* key) {
    object.require({key});
    return object.number(key, 0, kAnyNumber);
  };
  TrainState state;
  state.step = count(json, "step");
  state.stage = count(json, "stage");
  state.micro_batches = count(json, "micro_batches");
  state.updates = count(json, "updates");
  io::StrictObject cursor = json.object("cursor");
  state.cursor = {count(cursor, "epoch"), count(cursor, "row")};
  io::StrictObject interval = json.object("interval");
  state.interval = {.loss_sum = number(interval, "loss_sum"),
                    .predicted_tokens = count(interval, "predicted_tokens"),
                    .real_tokens = count(interval, "real_tokens"),
                    .pair_loss_sum = number(interval, "pair_loss_sum"),
                    .correct_pairs = count(interval, "correct_pairs"),
                    .pairs = count(interval, "pairs")};
  state.train_loss = number(json, "train_loss");
  io::StrictObject evaluation = json.object("evaluation");
  state.evaluation = {.loss = number(evaluation, "loss"),
                      .accuracy = number(evaluation, "accuracy"),
                      .unigram_loss = number(evaluation, "unigram_loss"),
                      .predicted_tokens = count(evaluation, "predicted_tokens"),
                      .pair_loss = evaluation.number("pair_loss", 0, kAnyNumber),
                      .pair_accuracy = evaluation.number("pair_accuracy", 0, kAnyNumber),
                      .pairs = evaluation.integer("pairs", 0, 0, INT64_MAX)};
  json.require({"data"});
  state.data = *json.find("data");
  for (const auto& [key, value] : {std::pair{"run", &state.run}, {"platform", &state.platform}}) {
    json.object(key);  // its keys are compared later
    *value = *json.find(key);
  }
  return state;
}

namespace {

// By moment. The views are of `files`.
std::map<std::string, std::vector<StoredPart>> stored_parts(const std::vector<io::SafetensorsFile>& files,
                                                            const std::vector<std::string>& paths) {
  std::map<std::string, std::vector<StoredPart>> parts;
  for (size_t i = 0; i < files.size(); ++i) {
    for (const io::TensorView& view : files[i].tensors()) {
      const size_t at = view.name.find('@');
      const int64_t begin = at == std::string::npos ? 0 : std::atoll(view.name.c_str() + at + 1);
      if (view.dtype != io::DType::kF32)
        fail("resume", "{} must hold {} as F32, got another type", paths[i], view.name);
      parts[view.name.substr(0, at)].push_back(
          {begin, {reinterpret_cast<const float*>(view.data.data()), view.data.size() / sizeof(float)}});
    }
  }
  return parts;
}

// Copies the overlap of the stored parts with `part`, and returns the count of copied numbers.
int64_t fill(const MomentPart& part, const std::vector<StoredPart>& stored) {
  const int64_t end = part.begin + part.values.numel();
  const at::Tensor on_cpu = part.values.is_cpu() ? part.values : at::empty(part.values.sizes(), at::kFloat);
  auto* const values = on_cpu.mutable_data_ptr<float>();
  int64_t filled = 0;
  for (const StoredPart& from : stored) {
    const int64_t low = std::max(part.begin, from.begin), high = std::min(end, from.begin + std::ssize(from.values));
    if (low >= high) continue;
    std::copy_n(from.values.data() + (low - from.begin), high - low, values + (low - part.begin));
    filled += high - low;
  }
  if (!part.values.is_cpu()) part.values.copy_(on_cpu);
  return filled;
}

}  // namespace

void load_moments(const std::string& checkpoint, AdamW& optimizer) {
  const std::vector<std::string> paths = moments_files(checkpoint);
  const std::vector<io::SafetensorsFile> files(paths.begin(), paths.end());
  const auto stored = stored_parts(files, paths);
  if (static_cast<int64_t>(stored.size()) != optimizer.moments_of_all()) {
    fail("resume", "{} must hold {} moments, got {}", paths.front(), optimizer.moments_of_all(), stored.size());
  }
  for (const MomentPart& part : optimizer.moments()) {
    const auto found = stored.find(part.name);
    const int64_t filled = found == stored.end() ? 0 : fill(part, found->second);
    if (filled != part.values.numel()) {
      fail("resume", "{} must hold {} as F32 of the weight's size, got {} of {} numbers", paths.front(), part.name,
           filled, part.values.numel());
    }
  }
}

TokenizerFiles::TokenizerFiles(const std::string& dir) {
  bool has_vocabulary = false;
  for (const std::string_view name : text::kTokenizerFiles) {
    const std::string path = fmt::format("{}/{}", dir, name);
    if (!io::has_file(path)) continue;
    files_.emplace_back(name, io::read_file(path));
    has_vocabulary = has_vocabulary || name == "tokenizer.json" || name == "vocab.txt" || name == "vocab.json";
  }
  if (!has_vocabulary) fail("checkpoint", "{} must hold tokenizer.json, vocab.txt or vocab.json, got none", dir);
}

void TokenizerFiles::write(const std::string& dir) const {
  for (const auto& [name, content] : files_) io::write_file(fmt::format("{}/{}", dir, name), content);
}

}  // namespace rf::train
