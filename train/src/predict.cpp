// What a fine-tuned model says of records, and what that is worth (rf/train/finetune.h).
#include "finetune_data.h"
#include "rf/io/error.h"
#include "tasks/classes.h"

namespace rf::train {

namespace {

// So many batches are read ahead, for rows of like lengths to go together.
constexpr int64_t kBatchesAhead = 8;

void check(const PredictOptions& options) {
  if (options.batch < 1) fail("task", "batch must be at least 1, got {}", options.batch);
}

}  // namespace

void predict(const PredictOptions& options, const std::function<void(const nlohmann::json&)>& line) {
  check(options);
  TaskModel model = load_task_model(options.model_dir, options.load, options.max_length);
  const std::string& id = model.settings.columns.at("id");
  TaskSplit waiting;
  const auto flush = [&] {
    const Judged judged = judge(model, waiting.examples, options.batch, Targets::kIgnored, {});
    for (size_t i = 0; i < waiting.records.size(); ++i) {
      const data::Record& record = waiting.records[i];
      nlohmann::json result = model.task->prediction(record, judged.scores[i]);
      result["line"] = record.line;
      if (const nlohmann::json* given = record.find(id)) result["id"] = *given;
      line(result);
    }
    waiting = {};
  };
  data::read_records(options.input, [&](data::Record& record) {
    waiting.examples.push_back(model.task->example(record, Targets::kIgnored));
    waiting.records.push_back(std::move(record));
    if (static_cast<int64_t>(waiting.records.size()) == options.batch * kBatchesAhead) flush();
  });
  flush();
}

nlohmann::json evaluate_task(const PredictOptions& options, io::Progress& progress) {
  check(options);
  TaskModel model = load_task_model(options.model_dir, options.load, options.max_length);
  std::vector<data::Record> records = read_task_records(options.input, "input");
  check_ids(records, model.settings);
  const TaskSplit split = make_split(*model.task, std::move(records));
  Judged judged = judge(model, split.examples, options.batch, Targets::kNeeded, [&](size_t done) {
    progress.update(fmt::format("record {} of {}", done, split.examples.size()));
  });
  nlohmann::json result = model.task->metrics(split.with(std::move(judged.scores)));
  result["loss"] = number_or_null(judged.loss);
  result["records"] = split.records.size();
  return result;
}

}  // namespace rf::train
