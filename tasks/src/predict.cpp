// Predictions of a fine-tuned model for records, and their metrics (rf/tasks/predict.h).
#include "rf/tasks/predict.h"

#include "rf/data/read_progress.h"
#include "rf/io/error.h"
#include "rf/tasks/examples.h"
#include "rf/tasks/metrics.h"
#include "tuned_model.h"

namespace rf::tasks {

namespace {

class Prediction {
 public:
  Prediction(const PredictOptions& options, const std::function<void(const nlohmann::json&)>& line,
             io::Progress& progress)
      : options_(options), line_(line), progress_(progress), model_(options) {}

  void read_texts() {
    const std::string field = text_field();
    if (field.empty()) {
      fail("predict", "a text alone goes with tasks that read one, got it with {}", model_.settings().kind);
    }
    const auto source = std::make_shared<const std::string>("--text");
    for (const std::string& text : options_.texts) add({source, static_cast<int64_t>(++records_), {{field, text}}});
    flush();
  }

  void read_input() {
    data::RecordOptions input = options_.input;
    input.text_field = text_field();
    data::RecordReader reader(input);
    data::ReadProgress reading(progress_, "predicting", reader.total_bytes());
    reader.read([&](data::Record& record) {
      if (add(std::move(record))) reading.update(reader.bytes_read());
    });
    flush();
    reading.update(reader.bytes_read());
  }

 private:
  // "" if the task reads other things than texts.
  std::string text_field() const {
    const auto text = model_.settings().columns.find("text");
    return text == model_.settings().columns.end() ? "" : text->second;
  }

  // True where records that waited are done.
  bool add(data::Record record) {
    Example example = model_.task().example(record, Targets::kIgnored);
    const bool is_full = tokens_ + example.tokens() > options_.batch_tokens;
    if (is_full) flush();
    tokens_ += example.tokens();
    waiting_.examples.push_back(std::move(example));
    waiting_.records.push_back(std::move(record));
    return is_full;
  }

  void flush() {
    if (waiting_.records.empty()) return;
    std::vector<const Example*> examples;
    for (const Example& example : waiting_.examples) examples.push_back(&example);
    const std::vector<Scores> scores = scores_of(model_.task(), examples, model_.logits(examples));
    for (size_t i = 0; i < waiting_.records.size(); ++i) {
      const data::Record& record = waiting_.records[i];
      nlohmann::json result = model_.task().prediction(record, scores[i]);
      result["line"] = record.line;
      if (const nlohmann::json* given = record.find(model_.settings().columns.at("id"))) result["id"] = *given;
      line_(result);
    }
    waiting_ = {};
    tokens_ = 0;
  }

  const PredictOptions& options_;
  const std::function<void(const nlohmann::json&)>& line_;
  io::Progress& progress_;
  TunedModel model_;
  Split waiting_;
  int64_t tokens_ = 0;  // of the examples that wait
  size_t records_ = 0;
};

}  // namespace

void predict(const PredictOptions& options, const std::function<void(const nlohmann::json&)>& line,
             io::Progress& progress) {
  Prediction prediction(options, line, progress);
  options.texts.empty() ? prediction.read_input() : prediction.read_texts();
}

nlohmann::json evaluate(const PredictOptions& options, io::Progress& progress) {
  const TunedModel model(options);
  const Split split = make_split(model.task(), read_records(options.input, "input"));
  Evaluation evaluation(model.task(), split.examples);
  const std::function<void(int64_t)> tick = io::counted(progress, "evaluating", std::ssize(split.examples));
  for (size_t next = 0; next < split.examples.size();) {
    std::vector<size_t> indices;
    std::vector<const Example*> examples;
    for (int64_t tokens = 0; next < split.examples.size(); ++next) {
      tokens += split.examples[next].tokens();
      if (!indices.empty() && tokens > options.batch_tokens) break;
      indices.push_back(next);
      examples.push_back(&split.examples[next]);
    }
    evaluation.add(indices, model.logits(examples));
    tick(static_cast<int64_t>(next));
  }
  Evaluated evaluated = std::move(evaluation).result();
  nlohmann::json result = model.task().metrics(split.with(std::move(evaluated.scores)));
  result["loss"] = number_or_null(evaluated.loss);
  result["records"] = split.records.size();
  return result;
}

}  // namespace rf::tasks
