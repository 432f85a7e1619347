// Shows to the Python tests what the metrics make of predictions: one JSON object a line on stdin, and one on stdout.
//   {"of": "classes", "gold": [..], "predicted": [..], "classes": n}     numbers from 0
//   {"of": "numbers", "gold": [..], "predicted": [..]}
//   {"of": "entities", "gold": [[labels], ..], "predicted": [[labels], ..]}
//   {"of": "answer", "gold": [texts], "predicted": text}
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "rf/tasks/metrics.h"

namespace rf::tasks {
namespace {

using nlohmann::json;

json number(double value) { return std::isnan(value) ? json() : json(value); }

json answer(const json& in) {
  const std::string of = in.at("of");
  if (of == "classes") {
    const std::vector<int64_t> gold = in.at("gold"), predicted = in.at("predicted");
    const auto confusion = confusion_matrix(gold, predicted, in.at("classes"));
    const ClassMetrics metrics = class_metrics(confusion);
    return {{"confusion", confusion},
            {"accuracy", number(metrics.accuracy)},
            {"f1", number(metrics.f1)},
            {"macro_f1", number(metrics.macro_f1)},
            {"matthews", number(metrics.matthews)}};
  }
  if (of == "numbers") {
    const std::vector<double> gold = in.at("gold"), predicted = in.at("predicted");
    return {{"pearson", number(pearson(gold, predicted))},
            {"spearman", number(spearman(gold, predicted))},
            {"mse", number(mean_squared_error(gold, predicted))}};
  }
  if (of == "entities") {
    const std::vector<std::vector<std::string>> gold = in.at("gold"), predicted = in.at("predicted");
    const SpanMetrics metrics = entity_metrics(gold, predicted);
    return {{"precision", metrics.precision}, {"recall", metrics.recall}, {"f1", metrics.f1}};
  }
  const std::vector<std::string> gold = in.at("gold");
  const std::string predicted = in.at("predicted");
  return {{"exact", answer_exact(gold, predicted)}, {"f1", answer_f1(gold, predicted)}};
}

}  // namespace
}  // namespace rf::tasks

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << rf::tasks::answer(nlohmann::json::parse(line)).dump() << '\n';
  }
}
