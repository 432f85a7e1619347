// A number for a text or a pair of texts: mean squared error of one logit, as transformers' problem_type regression.
// Scores: the number. Models trained here do not use an activation; a CrossEncoder's activation is applied to the
// score.
#include <cmath>

#include "bag_of_words.h"
#include "classes.h"
#include "cross_encoder_files.h"
#include "input_rows.h"
#include "losses.h"
#include "rf/io/error.h"
#include "rf/tasks/metrics.h"

namespace rf::tasks {

namespace {

constexpr double kMaxNumber = 1e15;  // so that the sum of squares over a batch, and of its gradients, fits a float32

class Regression : public RowTask {
 public:
  using RowTask::RowTask;

  void set_outputs(ModelConfig& config) const override { set_number_outputs(config, 1, "regression"); }

  Example example(const data::Record& record, Targets targets) override {
    Example example;
    add_text_input(record, settings_, rows_, example);
    if (targets == Targets::kNeeded) {
      const std::string& column = settings_.columns.at("label");
      example.number = record.number(column);
      if (std::abs(example.number) > kMaxNumber) {
        fail("input", "{} must have a number from {:g} to {:g} as {}, got {:g}", record.place(), -kMaxNumber,
             kMaxNumber, column, example.number);
      }
    }
    return example;
  }

  Loss loss(const Example& example, const Logits& logits, double) const override {
    const double away = scores(example, logits)[0] - example.number;
    return {away * away, 1, unpooled(example, logits, settings_.pooling, {Scores{2 * away}})};
  }
  Scores scores(const Example& example, const Logits& logits) const override {
    return {activated(settings_.activation, pooled(example, logits, settings_.pooling).front().front())};
  }
  nlohmann::json prediction(const data::Record&, const Scores& scores) const override { return {{"score", scores[0]}}; }
  nlohmann::json metrics(std::span<const Scored> scored) const override {
    std::vector<double> gold, predicted;
    for (const Scored& one : scored) {
      gold.push_back(one.example->number);
      predicted.push_back(one.scores[0]);
    }
    return {{"spearman", number_or_null(spearman(gold, predicted))},
            {"pearson", number_or_null(pearson(gold, predicted))},
            {"mse", number_or_null(mean_squared_error(gold, predicted))}};
  }
  std::vector<Scores> baseline(std::span<const Example> train, std::span<const Example> examples) const override {
    double sum = 0;
    for (const Example& example : train) sum += example.number;
    return std::vector<Scores>(examples.size(), {sum / static_cast<double>(train.size())});
  }
  std::vector<Scores> bag_of_words(std::span<const Example> train, std::span<const Example> examples) const override {
    if (!settings_.columns.contains("pair")) return {};
    return fitted_line(train, cosines(train, train), cosines(train, examples));
  }
};

}  // namespace

TaskKind regression_kind() {
  return {"regression",
          "a number for a text or a pair of texts",
          text_columns("label"),
          {"spearman", "pearson"},
          nullptr,
          make_task<Regression>,
          /*has_classes=*/false};
}

}  // namespace rf::tasks
