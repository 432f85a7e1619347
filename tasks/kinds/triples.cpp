// Which of two texts is more similar to a third (CAIL2019-SCM, spec R-CFG-6, R-MET-06): each of the pairs (A, B) and
// (A, C) gets one logit and a binary cross-entropy, with target 1 for the more similar pair. The greater logit wins.
// Scores: the logits of B and of C. Targets: 0 for B, 1 for C.
#include <algorithm>
#include <cmath>

#include "bag_of_words.h"
#include "classes.h"
#include "input_rows.h"
#include "losses.h"
#include "rf/tasks/metrics.h"

namespace rf::tasks {

namespace {

class Triples : public RowTask {
 public:
  using RowTask::RowTask;

  void set_outputs(ModelConfig& config) const override {
    // transformers' name for binary cross-entropy per logit
    set_number_outputs(config, 1, "multi_label_classification");
  }

  Example example(const data::Record& record, Targets targets) override {
    Example example;
    const std::string anchor = record.text(settings_.columns.at("A"));
    for (const char* candidate : {"B", "C"}) {
      const std::string text = record.text(settings_.columns.at(candidate));
      add_input(rows_.rows(record.place(), {anchor, text}), example);
    }
    if (targets == Targets::kNeeded) {
      example.targets = {labels_.id(record.place(), record.text(settings_.columns.at("label")))};
    }
    return example;
  }

  // The mean of both cross-entropies.
  Loss loss(const Example& example, const Logits& logits, double) const override {
    const Scores pair = scores(example, logits);
    double sum = 0;
    std::vector<Scores> gradients;
    for (size_t i = 0; i < 2; ++i) {
      const bool wanted = example.targets[0] == static_cast<int64_t>(i);
      sum += std::max(pair[i], 0.0) - (wanted ? pair[i] : 0) + std::log1p(std::exp(-std::abs(pair[i])));
      gradients.push_back({(sigmoid(pair[i]) - (wanted ? 1 : 0)) / 2});
    }
    return {sum / 2, 1, unpooled(example, logits, settings_.pooling, gradients)};
  }
  Scores scores(const Example& example, const Logits& logits) const override {
    const std::vector<Scores> inputs = pooled(example, logits, settings_.pooling);
    return {inputs[0][0], inputs[1][0]};
  }
  nlohmann::json prediction(const data::Record&, const Scores& scores) const override {
    return {{"label", labels_.name(greatest(scores))},
            {"scores", {{"B", sigmoid(scores[0])}, {"C", sigmoid(scores[1])}}}};
  }
  // Equal scores count as half right, like a guess.
  nlohmann::json metrics(std::span<const Scored> scored) const override {
    double right = 0;
    for (const Scored& one : scored) {
      const auto target = static_cast<size_t>(one.example->targets[0]);
      const double wanted = one.scores[target], other = one.scores[1 - target];
      right += wanted > other ? 1 : wanted == other ? 0.5 : 0;
    }
    return {{"accuracy", number_or_null(right / static_cast<double>(scored.size()))}};
  }
  std::vector<Scores> baseline(std::span<const Example>, std::span<const Example> examples) const override {
    return std::vector<Scores>(examples.size(), {0, 0});
  }
  std::vector<Scores> bag_of_words(std::span<const Example> train, std::span<const Example> examples) const override {
    return cosines(train, examples);
  }

 private:
  const Labels labels_{{"B", "C"}};
};

}  // namespace

TaskKind triples_kind() {
  using Use = TaskColumn::Use;
  return {"triples",
          "which of B and C is more like A",
          {{"A", Use::kInput}, {"B", Use::kInput}, {"C", Use::kInput}, {"label", Use::kTarget}},
          {"accuracy"},
          nullptr,
          make_task<Triples>,
          /*has_classes=*/false};
}

}  // namespace rf::tasks
