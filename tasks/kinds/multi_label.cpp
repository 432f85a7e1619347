// Any number of labels for a text or a pair of texts: binary cross-entropy of each label's logit, as transformers'
// problem_type multi_label_classification; a label is predicted where its probability is above 1/2.
// Scores: the logits. Targets: 0 or 1 for each label.
#include <algorithm>
#include <cmath>

#include "classes.h"
#include "losses.h"
#include "rf/tasks/metrics.h"

namespace rf::tasks {

namespace {

class MultiLabel : public TextLabels {
 public:
  MultiLabel(const TaskSettings& settings, std::shared_ptr<const text::Tokenizer> tokenizer)
      : TextLabels(settings, std::move(tokenizer), "multi_label", "multi_label_classification") {}

  // The mean over the labels.
  Loss loss(const Example& example, const Logits& logits, double) const override {
    const Scores x = scores(example, logits);
    const auto count = static_cast<double>(x.size());
    double sum = 0;
    Scores gradient;
    for (size_t i = 0; i < x.size(); ++i) {
      const auto wanted = static_cast<double>(example.targets[i]);
      sum += std::max(x[i], 0.0) - wanted * x[i] + std::log1p(std::exp(-std::abs(x[i])));
      gradient.push_back((sigmoid(x[i]) - wanted) / count);
    }
    return {sum / count, 1, unpooled(example, logits, settings_.pooling, {gradient})};
  }
  nlohmann::json prediction(const data::Record&, const Scores& scores) const override {
    nlohmann::json names = nlohmann::json::array(), probabilities = nlohmann::json::object();
    for (size_t i = 0; i < scores.size(); ++i) {
      probabilities[labels_.name(i)] = sigmoid(scores[i]);
      if (scores[i] > 0) names.push_back(labels_.name(i));
    }
    return {{"labels", names}, {"probabilities", probabilities}};
  }
  // f1 counts the labels of all records; accuracy the records whose labels are all right.
  nlohmann::json metrics(std::span<const Scored> scored) const override {
    double both = 0, either = 0, right = 0;
    for (const Scored& one : scored) {
      bool all = true;
      for (size_t i = 0; i < one.scores.size(); ++i) {
        const bool predicted = one.scores[i] > 0, gold = one.example->targets[i] == 1;
        both += predicted && gold ? 1 : 0;
        either += (predicted ? 1 : 0) + (gold ? 1 : 0);
        all = all && predicted == gold;
      }
      right += all ? 1 : 0;
    }
    return {{"f1", either == 0 ? 0.0 : 2 * both / either},
            {"accuracy", number_or_null(right / static_cast<double>(scored.size()))}};
  }
  // Each label's logit is the logarithm of its odds in the training examples.
  std::vector<Scores> baseline(std::span<const Example> train, std::span<const Example> examples) const override {
    Scores odds(labels_.size(), 0);
    for (size_t i = 0; i < odds.size(); ++i) {
      double count = 0;
      for (const Example& example : train) count += static_cast<double>(example.targets[i]);
      odds[i] = std::log((count + 1) / (static_cast<double>(train.size()) - count + 1));
    }
    return std::vector<Scores>(examples.size(), odds);
  }

 private:
  std::vector<int64_t> targets_of(const data::Record& record) const override {
    std::vector<int64_t> targets(labels_.size(), 0);
    for (const std::string& label : strings_of(record, settings_.columns.at("labels"), Items::kLabels)) {
      targets[static_cast<size_t>(labels_.id(record.place(), label))] = 1;
    }
    return targets;
  }
};

}  // namespace

TaskKind multi_label_kind() {
  return {"multi_label",          "any number of labels for a text or a pair of texts",
          text_columns("labels"), {"f1", "accuracy"},
          learn_label_lists,      make_task<MultiLabel>,
          /*has_classes=*/false};
}

}  // namespace rf::tasks
