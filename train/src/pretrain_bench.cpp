// Pretraining steps on command (pretrain_bench.h).
#include "rf/train/pretrain_bench.h"

#include <c10/core/GradMode.h>

#include <fmt/ranges.h>

#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>

#include "autocast.h"
#include "language_model.h"
#include "rf/io/error.h"
#include "rf/io/npy.h"
#include "train_step.h"

namespace rf::train {

namespace {

constexpr const char* kBench = "bench";
constexpr int64_t kNotMasked = -100;
constexpr double kLearningRate = 1e-4;

std::vector<data::Batch> read_batches(const PretrainBenchOptions& options) {
  const io::NpyArray ids = io::read_npy(options.ids_path), labels = io::read_npy(options.labels_path);
  if (ids.shape.size() != 3 || ids.shape != labels.shape || ids.data.empty()) {
    fail(kBench, "ids and labels must have one shape [N, B, T], got [{}] and [{}]", fmt::join(ids.shape, ", "),
         fmt::join(labels.shape, ", "));
  }
  const std::vector<int64_t> id_values = ids.to_int64(options.ids_path);
  const std::vector<int64_t> label_values = labels.to_int64(options.labels_path);
  const int64_t size = ids.shape[1] * ids.shape[2];
  std::vector<data::Batch> batches;
  for (int64_t n = 0; n < ids.shape[0]; ++n) {
    data::Batch batch;
    batch.batch_size = ids.shape[1];
    batch.length = ids.shape[2];
    batch.real_tokens = size;
    batch.segments.assign(static_cast<size_t>(size), 0);
    for (int64_t i = 0; i < size; ++i) {
      batch.ids.push_back(id_values[static_cast<size_t>(n * size + i)]);
      batch.positions.push_back(i % batch.length);
      const int64_t label = label_values[static_cast<size_t>(n * size + i)];
      if (label == kNotMasked) continue;
      batch.places.push_back(i);
      batch.labels.push_back(label);
    }
    batch.runs = batch.batch_size;
    if (batch.places.empty()) fail(kBench, "each batch must have a masked token, got none in batch {}", n);
    batches.push_back(std::move(batch));
  }
  return batches;
}

double evaluation_loss(nn::Model& model, const data::Batch& batch, Precision precision) {
  const c10::NoGradGuard no_grad;
  const AutocastScope autocast(precision);
  model.eval();
  const double sum = label_loss_sum(model, to_tensors(batch));
  model.train();
  return sum / static_cast<double>(batch.places.size());
}

// N of "steps N"; 0 when the line is something else.
int64_t step_count(const std::string& line) {
  constexpr std::string_view kCommand = "steps ";
  int64_t count = 0;
  if (!line.starts_with(kCommand)) return 0;
  const auto [stop, error] = std::from_chars(line.data() + kCommand.size(), line.data() + line.size(), count);
  return error == std::errc() && stop == line.data() + line.size() ? count : 0;
}

}  // namespace

void bench_pretrain_steps(const PretrainBenchOptions& options, const std::function<bool(std::string&)>& read_line,
                          const std::function<void(const std::string&)>& write_line) {
  using Clock = std::chrono::steady_clock;
  const auto model = nn::load_model(options.model_dir, Head::kMaskedLm, at::kFloat);
  const std::vector<data::Batch> batches = read_batches(options);
  AdamW optimizer(trained_parameters(*model), AdamWOptions{});
  int64_t step = 0;
  std::string line;
  while (read_line(line)) {
    if (line == "loss") {
      write_line(nlohmann::json{{"loss", evaluation_loss(*model, batches[0], options.precision)}}.dump());
      continue;
    }
    const int64_t count = step_count(line);
    if (count < 1) fail(kBench, "a command must be \"loss\" or \"steps N\", got \"{}\"", line);
    const Clock::time_point start = Clock::now();
    StepResult last;
    int64_t tokens = 0;
    for (int64_t i = 0; i < count; ++i) {
      const LanguageBatch batch = to_tensors(batches[static_cast<size_t>(step) % batches.size()]);
      ++step;
      last = train_step(*model, optimizer, {&batch, 1}, {options.precision, kLearningRate, step, 1, step});
      tokens += last.real_tokens;
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    write_line(nlohmann::json{{"steps", count},
                              {"seconds", seconds},
                              {"tokens", tokens},
                              {"loss", last.loss_sum / static_cast<double>(last.predicted_tokens)}}
                   .dump());
  }
}

}  // namespace rf::train
