// Predictions of a fine-tuned model for records, and their metrics (rf/tasks/predict.h).
#include "rf/tasks/predict.h"

#include <mutex>

#include "rf/data/read_progress.h"
#include "rf/io/error.h"
#include "rf/tasks/examples.h"
#include "rf/tasks/metrics.h"
#include "tuned_model.h"

namespace rf::tasks {

namespace {

// "" if the task reads other things than texts.
std::string text_field(const TaskSettings& settings) {
  const auto text = settings.columns.find("text");
  return text == settings.columns.end() ? "" : text->second;
}

void check_text_field(const TaskSettings& settings) {
  if (!text_field(settings).empty()) return;
  fail<ArgumentError>("predict", "a text alone goes with tasks that read one, got it with {}", settings.kind);
}

// Records that wait until there are enough tokens to compute.
class RecordBatch {
 public:
  using Line = std::function<void(const nlohmann::json&)>;
  RecordBatch(const TunedModel& model, int64_t tokens, Line line)
      : model_(model), batch_tokens_(tokens), line_(std::move(line)) {}

  // True where records that waited are done.
  bool add(data::Record record, Example example) {
    const bool is_full = tokens_ + example.tokens() > batch_tokens_;
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
    const std::vector<Scores> scores = scores_of(model_.task(), examples, model_.logits(examples, waiting_.records));
    for (size_t i = 0; i < waiting_.records.size(); ++i) {
      const data::Record& record = waiting_.records[i];
      nlohmann::json result = model_.task().prediction(record, scores[i]);
      result["index"] = index_++;
      result["line"] = record.line;
      if (const nlohmann::json* given = record.find(model_.settings().columns.at("id"))) result["id"] = *given;
      line_(result);
    }
    waiting_ = {};
    tokens_ = 0;
  }

 private:
  const TunedModel& model_;
  const int64_t batch_tokens_;
  const Line line_;
  Split waiting_;
  int64_t index_ = 0;   // of the first record that waits
  int64_t tokens_ = 0;  // of the examples that wait
};

}  // namespace

void predict(const PredictOptions& options, const std::function<void(const nlohmann::json&)>& line,
             io::Progress& progress) {
  const TunedModel model(options);
  RecordBatch batch(model, options.batch_tokens, line);
  const auto add = [&](data::Record record) {
    Example example = model.task().example(record, Targets::kIgnored);
    return batch.add(std::move(record), std::move(example));
  };
  const std::string field = text_field(model.settings());
  if (!options.texts.empty()) {
    check_text_field(model.settings());
    const auto source = std::make_shared<const std::string>("--text");
    int64_t count = 0;
    for (const std::string& text : options.texts) add({source, ++count, {{field, text}}});
    return batch.flush();
  }
  data::RecordOptions input = options.input;
  input.text_field = field;
  data::RecordReader reader(input);
  data::ReadProgress reading(progress, "predicting", reader.total_bytes());
  reader.read([&](data::Record& record) {
    if (add(std::move(record))) reading.update(reader.bytes_read());
  });
  batch.flush();
  reading.update(reader.bytes_read());
}

struct Predictor::Impl {
  TunedModel model;
  int64_t batch_tokens;
  std::mutex mutex;  // of the task, which has buffers for making examples

  explicit Impl(const PredictOptions& options) : model(options), batch_tokens(options.batch_tokens) {}
};

Predictor::Predictor(const PredictOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Predictor::~Predictor() = default;
Predictor::Predictor(Predictor&&) noexcept = default;
Predictor& Predictor::operator=(Predictor&&) noexcept = default;

std::vector<nlohmann::json> Predictor::predict(const std::vector<nlohmann::json>& records) const {
  const TaskSettings& settings = impl_->model.settings();
  const auto source = std::make_shared<const std::string>("records");
  std::vector<nlohmann::json> results;
  int64_t line = 0;
  RecordBatch batch(impl_->model, impl_->batch_tokens,
                    [&results](const nlohmann::json& result) { results.push_back(result); });
  for (const nlohmann::json& each : records) {
    if (each.is_string()) check_text_field(settings);
    data::Record record{source, ++line, each};
    if (each.is_string()) record.fields = {{text_field(settings), each}};
    std::unique_lock lock(impl_->mutex);
    Example example = impl_->model.task().example(record, Targets::kIgnored);
    lock.unlock();
    batch.add(std::move(record), std::move(example));
  }
  batch.flush();
  return results;
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
    const std::span<const data::Record> records(split.records);
    evaluation.add(indices, model.logits(examples, records.subspan(indices.front(), indices.size())));
    tick(static_cast<int64_t>(next));
  }
  Evaluated evaluated = std::move(evaluation).result();
  nlohmann::json result = model.task().metrics(split.with(std::move(evaluated.scores)));
  result["loss"] = number_or_null(evaluated.loss);
  result["records"] = split.records.size();
  return result;
}

}  // namespace rf::tasks
