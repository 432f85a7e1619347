// Classes of texts and pairs: cross-entropy over the labels of the training file.
// Scores: the logits. Targets: the class.
#include "bag_of_words.h"
#include "classes.h"
#include "losses.h"

namespace rf::tasks {

namespace {

class Classification : public TextLabels {
 public:
  Classification(const TaskSettings& settings, std::shared_ptr<const text::Tokenizer> tokenizer)
      : TextLabels(settings, std::move(tokenizer), "classification", "single_label_classification") {}

  Loss loss(const Example& example, const Logits& logits, double label_smoothing) const override {
    const auto target = static_cast<size_t>(example.targets[0]);
    const CrossEntropy cost = cross_entropy(scores(example, logits), target, label_smoothing);
    return {cost.value, 1, unpooled(example, logits, settings_.pooling, {cost.gradient})};
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
  std::vector<int64_t> targets_of(const data::Record& record) const override {
    return {labels_.id(record.place(), record.text(settings_.columns.at("label")))};
  }
};

void learn_labels(std::span<const data::Record> records, TaskSettings& settings) {
  std::vector<std::string> labels;
  for (const data::Record& record : records) add_label(record, record.text(settings.columns.at("label")), labels);
  settings.labels = training_labels(records, std::move(labels));
}

}  // namespace

TaskKind classification_kind() {
  return {"classification",      "the class of a text or a pair of texts",
          text_columns("label"), {"accuracy", "f1", "macro_f1", "matthews"},
          learn_labels,          make_task<Classification>};
}

}  // namespace rf::tasks
