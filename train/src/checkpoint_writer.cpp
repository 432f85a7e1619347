// Copying, writing and publishing checkpoints (checkpoint_writer.h).
#include "checkpoint_writer.h"

#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>

#include <chrono>
#include <filesystem>
#include <utility>

#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/safetensors.h"
#include "rf/model/run_checkpoints.h"

namespace rf::train {

namespace {

namespace fs = std::filesystem;

void write_moments(const std::string& dir, const std::vector<MomentPart>& moments, const Ranks& ranks) {
  std::vector<io::TensorView> views;
  for (const MomentPart& part : moments) {
    const std::string name = ranks.size() == 1 ? part.name : fmt::format("{}@{}", part.name, part.begin);
    const std::vector<int64_t> shape = ranks.size() == 1 ? part.values.sizes().vec() : std::vector{part.values.numel()};
    const auto* bytes = static_cast<const std::byte*>(part.values.const_data_ptr());
    views.push_back({name, io::DType::kF32, shape, {bytes, part.values.nbytes()}});
  }
  io::write_safetensors(moments_file(dir, ranks.index(), ranks.size()), views, {});
}

}  // namespace

// A directory that is removed again unless it gets its final name.
class CheckpointWriter::Directory {
 public:
  explicit Directory(std::string path) : path_(std::move(path)) {
    fs::remove_all(path_);
    std::error_code error;
    if (!fs::create_directory(path_, error)) fail("checkpoint", "{} must be writable, got: {}", path_, error.message());
  }
  ~Directory() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  void rename_to(const std::string& path) {
    io::sync_directory(path_);
    fs::rename(path_, path);
    io::sync_directory(fs::path(path).parent_path());
    path_.clear();
  }

 private:
  std::string path_;
};

CheckpointWriter::CheckpointWriter(CheckpointPlan plan) : plan_(std::move(plan)) {}

CheckpointWriter::~CheckpointWriter() {
  try {
    if (plan_.ranks.size() == 1) finish();
  } catch (const std::exception&) {  // the run ends with another error
  }
  if (work_.valid()) work_.wait();
}

void CheckpointWriter::begin_with(const TakeModel& take, const AdamW& optimizer, nlohmann::json state) {
  finish();
  const Ranks& ranks = plan_.ranks;
  const int64_t step = state.at("step");
  path_ = checkpoint_path(plan_.run_dir, step);
  // The same step of the same run has the same bits.
  if (ranks.largest(ranks.is_first() && fs::exists(path_) ? 1 : 0) > 0) return;
  const std::string dir = unfinished_path(plan_.run_dir, step);
  ranks.together([&] {
    if (ranks.is_first()) unfinished_ = std::make_unique<Directory>(dir);
    copy(take, optimizer);
  });
  state_ = std::move(state);
  phase_ = Phase::kWriting;
  work_ = std::async(std::launch::async, [this, dir] { write(dir); });
}

void CheckpointWriter::copy(const TakeModel& take, const AdamW& optimizer) {
  const c10::NoGradGuard no_grad;
  if (plan_.ranks.is_first()) take(model_);
  std::vector<MomentPart> parts = optimizer.moments_to_write(plan_.ranks);
  for (size_t i = 0; i < parts.size(); ++i) {
    const at::Tensor values = parts[i].values;
    parts[i].values = i < moments_.size() ? moments_[i].values : at::empty_like(values, at::kCPU);
    parts[i].values.copy_(values);
  }
  moments_ = std::move(parts);
}

// Calls no operator of torch, so it does not occupy a core of the computing threads.
void CheckpointWriter::write(const std::string& dir) const {
  write_moments(dir, moments_, plan_.ranks);
  if (!plan_.ranks.is_first()) return;
  if (plan_.sync) plan_.sync();
  model_.write(dir);
  plan_.tokenizer.write(dir);
  save_state(dir, state_);
}

void CheckpointWriter::publish() {
  unfinished_->rename_to(path_);
  unfinished_.reset();
  drop_checkpoints(plan_.run_dir, plan_.keep);
}

bool CheckpointWriter::is_done() const {
  if (phase_ == Phase::kIdle) return false;
  return !work_.valid() || work_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

void CheckpointWriter::go_on() {
  const Phase done = std::exchange(phase_, Phase::kIdle);
  if (done == Phase::kIdle) return;
  plan_.ranks.together([&] {
    if (work_.valid()) work_.get();
  });
  if (done == Phase::kPublishing) return;
  phase_ = Phase::kPublishing;
  if (plan_.ranks.is_first()) work_ = std::async(std::launch::async, [this] { publish(); });
}

void CheckpointWriter::finish() {
  while (phase_ != Phase::kIdle) go_on();
}

}  // namespace rf::train
