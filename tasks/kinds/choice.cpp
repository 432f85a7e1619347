// Multiple choice: each choice is a pair with the text and gets one logit; softmax over a question's choices. Questions
// may have different numbers of choices. Scores: the logits. Targets: the choice from 0.
#include <algorithm>
#include <cmath>

#include "bag_of_words.h"
#include "classes.h"
#include "input_rows.h"
#include "losses.h"
#include "rf/io/error.h"
#include "rf/tasks/metrics.h"

namespace rf::tasks {

namespace {

// The field `choices`, a list of texts; or the fields choices0, choices1, .. up to the last one present.
std::vector<std::string> choices_of(const data::Record& record, const TaskSettings& settings) {
  std::vector<std::string> choices;
  const std::string& column = settings.columns.at("choices");
  if (record.find(column) != nullptr) {
    choices = strings_of(record, column, Items::kTexts);
  } else {
    const auto name = [&](size_t i) { return fmt::format("{}{}", column, i); };
    record.at(name(0));
    while (record.find(name(choices.size())) != nullptr) choices.push_back(record.text(name(choices.size())));
  }
  if (choices.size() < 2) {
    fail("input", "{} must have at least two choices, got {}", record.place(), choices.size());
  }
  return choices;
}

class Choice : public RowTask {
 public:
  using RowTask::RowTask;

  Head head() const override { return Head::kMultipleChoice; }
  void set_outputs(ModelConfig& config) const override {
    set_number_outputs(config, ModelConfig{}.num_labels, "");
    // A RoFormer's default, the last token, is padding in a padded row (R-HF-12).
    if (config.family != Family::kBert) config.summary_type = "first";
  }

  Example example(const data::Record& record, Targets targets) override {
    Example example;
    const std::string text = record.text(settings_.columns.at("text"));
    const std::vector<std::string> choices = choices_of(record, settings_);
    for (const std::string& choice : choices) add_input(rows_.rows(record.place(), {text, choice}), example);
    if (targets == Targets::kNeeded) {
      const std::string& column = settings_.columns.at("label");
      const double label = record.number(column);
      const auto count = static_cast<double>(choices.size());
      if (!(label >= 0 && label < count) || label != std::trunc(label)) {
        fail("input", "{} must have an integer from 0 to {} as {}, got {}", record.place(), choices.size() - 1, column,
             record.at(column).dump());
      }
      example.targets = {static_cast<int64_t>(label)};
    }
    return example;
  }

  Loss loss(const Example& example, const Logits& logits, double label_smoothing) const override {
    const auto target = static_cast<size_t>(example.targets[0]);
    const CrossEntropy cost = cross_entropy(scores(example, logits), target, label_smoothing);
    std::vector<Scores> gradients;
    for (const double derivative : cost.gradient) gradients.push_back({derivative});
    return {cost.value, 1, unpooled(example, logits, settings_.pooling, gradients)};
  }
  Scores scores(const Example& example, const Logits& logits) const override {
    Scores scores;
    for (const Scores& of_choice : pooled(example, logits, settings_.pooling)) scores.push_back(of_choice[0]);
    return scores;
  }
  nlohmann::json prediction(const data::Record&, const Scores& scores) const override {
    return {{"label", greatest(scores)}, {"probabilities", softmax(scores)}};
  }
  nlohmann::json metrics(std::span<const Scored> scored) const override {
    double right = 0;
    for (const Scored& one : scored) right += chance_of_right(one);
    return {{"accuracy", number_or_null(right / static_cast<double>(scored.size()))}};
  }
  std::vector<Scores> baseline(std::span<const Example>, std::span<const Example> examples) const override {
    std::vector<Scores> scores;
    for (const Example& example : examples) scores.emplace_back(example.rows_of_input.size(), 0);
    return scores;
  }
  std::vector<Scores> bag_of_words(std::span<const Example> train, std::span<const Example> examples) const override {
    return cosines(train, examples);
  }

 private:
  // If several choices share the greatest score, one is guessed.
  static double chance_of_right(const Scored& one) {
    const double highest = *std::max_element(one.scores.begin(), one.scores.end());
    if (one.scores[static_cast<size_t>(one.example->targets[0])] != highest) return 0;
    return 1 / static_cast<double>(std::count(one.scores.begin(), one.scores.end(), highest));
  }
};

}  // namespace

TaskKind choice_kind() {
  using Use = TaskColumn::Use;
  return {"choice",
          "which of several choices goes with a text",
          {{"text", Use::kInput}, {"choices", Use::kInput}, {"label", Use::kTarget}},
          {"accuracy"},
          nullptr,
          make_task<Choice>};
}

}  // namespace rf::tasks
