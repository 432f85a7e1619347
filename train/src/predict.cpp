// Predictions of a fine-tuned model for records, and their metrics (rf/train/finetune.h).
#include <cmath>

#include "finetune_data.h"
#include "rf/data/read_progress.h"
#include "rf/io/error.h"
#include "tasks/classes.h"

namespace rf::train {

namespace {

// Number of batches that are read ahead, so that rows of similar lengths can be batched.
constexpr int64_t kBatchesAhead = 8;

TaskModel open(const PredictOptions& options) {
  if (options.batch < 1) fail("task", "batch must be at least 1, got {}", options.batch);
  return load_task_model(options.model_dir, options.load, options.max_length, options.columns);
}

class Prediction {
 public:
  Prediction(const PredictOptions& options, const std::function<void(const nlohmann::json&)>& line,
             io::Progress& progress)
      : options_(options), line_(line), progress_(progress), model_(open(options)) {}

  void read_texts() {
    const std::string field = text_field();
    if (field.empty()) fail("predict", "a text alone goes with tasks that read one, got it with {}", kind());
    const auto source = std::make_shared<const std::string>("--text");
    for (const std::string& text : options_.texts) {
      add({source, static_cast<int64_t>(records_) + 1, {{field, text}}}, [](double) {});
    }
    flush([](double) {});
  }

  void read_input() {
    data::RecordOptions input = options_.input;
    input.text_field = text_field();
    data::RecordReader reader(input);
    data::ReadProgress reading(progress_, "predicting", reader.total_bytes());
    int64_t done_bytes = 0;  // of the records before those that wait
    const auto show = [&](double part) {
      const int64_t waiting = reader.bytes_read() - done_bytes;
      reading.update(done_bytes + std::llround(part * static_cast<double>(waiting)));
      if (part == 1) done_bytes = reader.bytes_read();
    };
    reader.read([&](data::Record& record) { add(std::move(record), show); });
    flush(show);
  }

 private:
  using Show = std::function<void(double)>;  // receives the finished part of the records that wait

  const std::string& kind() const { return model_.settings.kind; }
  // "" if the task reads other things than texts.
  std::string text_field() const {
    const auto text = model_.settings.columns.find("text");
    return text == model_.settings.columns.end() ? "" : text->second;
  }

  void add(data::Record record, const Show& show) {
    waiting_.examples.push_back(model_.task->example(record, Targets::kIgnored));
    waiting_.records.push_back(std::move(record));
    ++records_;
    if (static_cast<int64_t>(waiting_.records.size()) == options_.batch * kBatchesAhead) flush(show);
  }

  void flush(const Show& show) {
    const auto count = static_cast<double>(waiting_.records.size());
    const Evaluated evaluated = score_examples(model_, waiting_.examples, options_.batch, Targets::kIgnored,
                                               [&](size_t done) { show(static_cast<double>(done) / count); });
    for (size_t i = 0; i < waiting_.records.size(); ++i) {
      const data::Record& record = waiting_.records[i];
      nlohmann::json result = model_.task->prediction(record, evaluated.scores[i]);
      result["line"] = record.line;
      if (const nlohmann::json* given = record.find(model_.settings.columns.at("id"))) result["id"] = *given;
      line_(result);
    }
    waiting_ = {};
  }

  const PredictOptions& options_;
  const std::function<void(const nlohmann::json&)>& line_;
  io::Progress& progress_;
  TaskModel model_;
  TaskSplit waiting_;
  size_t records_ = 0;
};

}  // namespace

void predict(const PredictOptions& options, const std::function<void(const nlohmann::json&)>& line,
             io::Progress& progress) {
  Prediction prediction(options, line, progress);
  options.texts.empty() ? prediction.read_input() : prediction.read_texts();
}

nlohmann::json evaluate_task(const PredictOptions& options, io::Progress& progress) {
  TaskModel model = open(options);
  std::vector<data::Record> records = read_task_records(options.input, "input");
  const TaskSplit split = make_split(*model.task, std::move(records));
  Evaluated evaluated = score_examples(model, split.examples, options.batch, Targets::kNeeded,
                                       io::counted(progress, "evaluating", std::ssize(split.examples)));
  nlohmann::json result = model.task->metrics(split.with(std::move(evaluated.scores)));
  result["loss"] = number_or_null(evaluated.loss);
  result["records"] = split.records.size();
  return result;
}

}  // namespace rf::train
