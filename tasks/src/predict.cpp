// Predictions of a fine-tuned model for records, and their metrics (rf/tasks/predict.h).
#include "rf/tasks/predict.h"

#include <mutex>
#include <numeric>
#include <optional>
#include <span>

#include "cross_encoder_files.h"
#include "model_task.h"
#include "rf/data/read_progress.h"
#include "rf/engine/schedule.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/finite.h"
#include "rf/io/printable.h"
#include "rf/io/warning.h"
#include "rf/model/foreign_models.h"
#include "rf/tasks/cross_encoder.h"
#include "rf/tasks/examples.h"
#include "rf/tasks/metrics.h"

namespace rf::tasks {

namespace {

// Logits that own their numbers.
struct OwnLogits {
  std::vector<float> values;
  int64_t columns = 1;

  operator Logits() const { return {values, columns}; }
};

// A fine-tuned model: its task, its tokenizer, and the engine with its weights.
class TunedModel {
 public:
  // Throws Error for a directory without a task, or with a task that does not match the model.
  explicit TunedModel(const PredictOptions& options);

  const TaskSettings& settings() const { return settings_; }
  Task& task() const { return *task_; }
  // Throws Error for logits that are not finite; records: of the examples, for messages.
  OwnLogits logits(std::span<const Example* const> examples, std::span<const data::Record> records) const;

 private:
  TaskSettings settings_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::unique_ptr<Task> task_;
  std::optional<engine::Model> model_;
};

void check_head(const std::string& model_dir, const Task& task, const TaskSettings& settings) {
  const ModelConfig config = load_any_config(model_dir);
  if (config.head() != task.head()) {
    fail("task", "{} must have the head of its task, {}, got {}", model_dir, architecture_of(config, task.head()),
         architecture_of(config, config.head()));
  }
  const auto labels = static_cast<int64_t>(settings.labels.size());
  if (labels > 0 && labels != config.num_labels) {
    fail("task", "{} must have a label for each output of the head, {}, got {}", model_dir, config.num_labels, labels);
  }
}

TunedModel::TunedModel(const PredictOptions& options) {
  if (options.batch_tokens < 1) fail("task", "batch-tokens must be at least 1, got {}", options.batch_tokens);
  const io::WarningScope scope(options.note);
  auto [model_dir, settings] = task_of_model(options.model_dir, options.note);
  settings_ = std::move(settings);
  if (options.max_length) settings_.max_length = *options.max_length;
  check_settings(settings_);
  rename_columns(options.columns, settings_);
  tokenizer_ = tasks::load_tokenizer(model_dir, options.load);
  task_ = task_kind(settings_.kind).make(settings_, tokenizer_);
  check_head(model_dir, *task_, settings_);
  model_.emplace(model_dir, engine::ModelOptions{.precision = options.precision,
                                                 .token_budget = options.batch_tokens,
                                                 .warn = options.note,
                                                 .adapter = options.adapter});
  check_length(*model_, settings_.max_length);
}

OwnLogits TunedModel::logits(std::span<const Example* const> examples, std::span<const data::Record> records) const {
  engine::DistinctSequences sequences;
  for (const Example* example : examples) {
    for (const TokenRow& row : example->rows)
      sequences.add(row.ids, settings_.token_types ? std::span(row.types) : std::span<const uint8_t>());
  }
  OwnLogits logits{sequences.compute(engine::logits_of(*model_)), model_->logits_per_row()};
  const auto place = [&](int64_t line) {
    for (size_t i = 0;; ++i) {
      line -= reads_tokens(task_->head()) ? examples[i]->tokens() : std::ssize(examples[i]->rows);
      if (line < 0) return records[i].place();
    }
  };
  io::check_finite(logits.values, logits.columns, place, [](int64_t) { return "logits"; });
  return logits;
}

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
      : model_(model), batch_tokens_(tokens), room_(tokens), line_(std::move(line)) {}

  // True where records that waited are done.
  bool add(data::Record record, Example example) {
    const bool is_full = !room_.take(example.tokens());
    if (is_full) {
      flush();
      room_.take(example.tokens());
    }
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
    room_ = engine::TokenBudget(batch_tokens_);
  }

 private:
  const TunedModel& model_;
  const int64_t batch_tokens_;
  engine::TokenBudget room_;  // of the examples that wait
  const Line line_;
  Split waiting_;
  int64_t index_ = 0;  // of the first record that waits
};

// Whether the next token scores pairs, or pairs are messages of a chat: no row of a task describes such a CrossEncoder.
bool is_pair_scorer(const PredictOptions& options) {
  if (io::has_file(options.model_dir + "/" + kTaskFile)) return false;
  const CrossEncoderFiles files = read_cross_encoder_files(options.model_dir, {});  // noted when it is opened
  return files.is_stated && (files.generates || files.chat_template);
}

CrossEncoder pair_scorer(const PredictOptions& options) {
  return CrossEncoder({.model_dir = options.model_dir,
                       .load = options.load,
                       .adapter = options.adapter,
                       .max_length = options.max_length,
                       .precision = options.precision,
                       .batch_tokens = options.batch_tokens,
                       .note = options.note});
}

[[noreturn]] void refuse_text() {
  fail<ArgumentError>("predict", "a record must have text and pair, got a text alone");
}

// first: the index of the first record. columns: fields that have other names.
std::vector<nlohmann::json> score_pairs(const CrossEncoder& model, const std::vector<data::Record>& read,
                                        int64_t first = 0, const std::map<std::string, std::string>& columns = {}) {
  std::vector<std::string> texts;
  for (const data::Record& record : read) {
    for (const char* field : {"text", "pair"}) {
      const auto named = columns.find(field);
      texts.push_back(record.text(named == columns.end() ? field : named->second));
    }
  }
  std::vector<text::TextPair> pairs;
  for (size_t i = 0; i < texts.size(); i += 2) pairs.push_back({texts[i], texts[i + 1]});
  const auto place = [&](int64_t i) { return read[static_cast<size_t>(i)].place(); };
  const std::vector<float> scores = model.scores(pairs, std::nullopt, place);
  std::vector<nlohmann::json> results;
  for (size_t i = 0; i < read.size(); ++i) {
    results.push_back({{"score", scores[i]}, {"index", first + static_cast<int64_t>(i)}, {"line", read[i].line}});
    if (const nlohmann::json* given = read[i].find("id")) results.back()["id"] = *given;
  }
  return results;
}

void predict_pairs(const PredictOptions& options, const std::function<void(const nlohmann::json&)>& line,
                   io::Progress& progress) {
  if (!options.texts.empty()) refuse_text();
  for (const auto& [column, field] : options.columns) {
    if (column != "text" && column != "pair")
      fail<ArgumentError>("predict", "columns must be text and pair, got {}", io::printable(column));
  }
  constexpr size_t kBlock = 512;
  const CrossEncoder model = pair_scorer(options);
  data::RecordReader reader(options.input);
  data::ReadProgress reading(progress, "predicting", reader.total_bytes());
  std::vector<data::Record> waiting;
  int64_t first = 0;
  const auto flush = [&] {
    for (const nlohmann::json& result : score_pairs(model, waiting, first, options.columns)) line(result);
    first += std::ssize(waiting);
    waiting.clear();
    reading.update(reader.bytes_read());
  };
  reader.read([&](data::Record& record) {
    waiting.push_back(std::move(record));
    if (waiting.size() == kBlock) flush();
  });
  flush();
}

}  // namespace

void predict(const PredictOptions& options, const std::function<void(const nlohmann::json&)>& line,
             io::Progress& progress) {
  if (is_pair_scorer(options)) return predict_pairs(options, line, progress);
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
  std::optional<TunedModel> tuned;
  std::optional<CrossEncoder> pairs;  // in place of `tuned`
  int64_t batch_tokens;
  std::mutex mutex;  // of the task, which has buffers for making examples

  explicit Impl(const PredictOptions& options) : batch_tokens(options.batch_tokens) {
    if (!is_pair_scorer(options)) {
      tuned.emplace(options);
      return;
    }
    pairs.emplace(pair_scorer(options));
  }
};

Predictor::Predictor(const PredictOptions& options) : impl_(std::make_shared<Impl>(options)) {}

std::vector<nlohmann::json> Predictor::predict(const std::vector<nlohmann::json>& records) const {
  const auto source = std::make_shared<const std::string>("records");
  if (impl_->pairs) {
    std::vector<data::Record> read;
    for (const nlohmann::json& each : records) {
      if (!each.is_object()) refuse_text();
      read.push_back({source, std::ssize(read) + 1, each});
    }
    return score_pairs(*impl_->pairs, read);
  }
  const TunedModel& model = *impl_->tuned;
  const TaskSettings& settings = model.settings();
  std::vector<nlohmann::json> results;
  int64_t line = 0;
  RecordBatch batch(model, impl_->batch_tokens,
                    [&results](const nlohmann::json& result) { results.push_back(result); });
  for (const nlohmann::json& each : records) {
    if (each.is_string()) check_text_field(settings);
    data::Record record{source, ++line, each};
    if (each.is_string()) record.fields = {{text_field(settings), each}};
    std::unique_lock lock(impl_->mutex);
    Example example = model.task().example(record, Targets::kIgnored);
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
  std::vector<int64_t> offsets{0};
  std::vector<const Example*> examples;
  for (const Example& example : split.examples) {
    offsets.push_back(offsets.back() + example.tokens());
    examples.push_back(&example);
  }
  engine::for_batches(offsets, options.batch_tokens, [&](int64_t first, int64_t count) {
    const auto begin = static_cast<size_t>(first), size = static_cast<size_t>(count);
    std::vector<size_t> indices(size);
    std::iota(indices.begin(), indices.end(), begin);
    evaluation.add(
        indices, model.logits(std::span(examples).subspan(begin, size), std::span(split.records).subspan(begin, size)));
    tick(first + count);
  });
  Evaluated evaluated = std::move(evaluation).result();
  nlohmann::json result = model.task().metrics(split.with(std::move(evaluated.scores)));
  result["loss"] = number_or_null(evaluated.loss);
  result["records"] = split.records.size();
  return result;
}

}  // namespace rf::tasks
