// Classes of texts and of pairs: cross-entropy over the labels of the training file.
// Scores: the logits. Targets: the class.
#include "bag_of_words.h"
#include "classes.h"
#include "input_rows.h"
#include "losses.h"

namespace rf::tasks {

namespace {

class Classification : public Task {
 public:
  Classification(const TaskSettings& settings, std::shared_ptr<const text::Tokenizer> tokenizer)
      : settings_(settings),
        labels_(settings.labels, settings.ids_are_labels ? Labels::Ids::kTaken : Labels::Ids::kRefused),
        rows_(std::move(tokenizer), settings, text::Overflow::kDropped) {
    check_labels(settings.labels, "classification");
  }

  Head head() const override { return Head::kSequenceClassification; }
  void set_outputs(ModelConfig& config) const override {
    labels_.set_outputs(config);
    config.problem_type = "single_label_classification";
  }

  Example example(const data::Record& record, Targets targets) override {
    Example example;
    add_text_input(record, settings_, rows_, example);
    if (targets == Targets::kNeeded) {
      const std::string& column = settings_.columns.at("label");
      example.targets = {labels_.id(record.place(), record.text(column))};
    }
    return example;
  }

  Loss loss(const Example& example, const Logits& logits, double label_smoothing) const override {
    const auto target = static_cast<size_t>(example.targets[0]);
    const CrossEntropy cost = cross_entropy(scores(example, logits), target, label_smoothing);
    return {cost.value, 1, unpooled(example, logits, settings_.pooling, {cost.gradient})};
  }
  Scores scores(const Example& example, const Logits& logits) const override {
    return pooled(example, logits, settings_.pooling).front();
  }
  nlohmann::json prediction(const data::Record&, const Scores& scores) const override {
    const std::vector<double> probabilities = softmax(scores);
    nlohmann::json by_label = nlohmann::json::object();
    for (size_t i = 0; i < probabilities.size(); ++i) by_label[labels_.name(i)] = probabilities[i];
    const size_t best = greatest(scores);
    return {{"label", labels_.name(best)}, {"score", probabilities[best]}, {"probabilities", by_label}};
  }
  nlohmann::json metrics(std::span<const Scored> scored) const override {
    return class_metrics_json(confusion(scored));
  }
  std::vector<Scores> baseline(std::span<const Example> train, std::span<const Example> examples) const override {
    Scores counts(labels_.size(), 0);
    for (const Example& example : train) ++counts[static_cast<size_t>(example.targets[0])];
    return std::vector<Scores>(examples.size(), counts);
  }
  std::vector<Scores> bag_of_words(std::span<const Example> train, std::span<const Example> examples) const override {
    if (!settings_.columns.contains("pair")) return naive_bayes(train, examples, labels_.size());
    return gaussian_classes(train, cosines(train, train), cosines(train, examples), labels_.size());
  }
  std::vector<std::vector<int64_t>> confusion(std::span<const Scored> scored) const override {
    return class_confusion(scored, static_cast<int64_t>(labels_.size()));
  }

 private:
  const TaskSettings settings_;
  Labels labels_;
  InputRows rows_;
};

void learn_labels(std::span<const data::Record> records, TaskSettings& settings) {
  std::vector<std::string> labels;
  for (const data::Record& record : records) add_label(record, record.text(settings.columns.at("label")), labels);
  settings.labels = training_labels(records, std::move(labels));
}

}  // namespace

TaskKind classification_kind() {
  using Use = TaskColumn::Use;
  return {"classification",
          "the class of a text or a pair of texts",
          {{"text", Use::kInput}, {"pair", Use::kOptionalInput}, {"label", Use::kTarget}},
          {"accuracy", "f1", "macro_f1", "matthews"},
          learn_labels,
          [](const TaskSettings& settings, std::shared_ptr<const text::Tokenizer> tokenizer) -> std::unique_ptr<Task> {
            return std::make_unique<Classification>(settings, std::move(tokenizer));
          }};
}

}  // namespace rf::tasks
