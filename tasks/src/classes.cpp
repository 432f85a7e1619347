// Labels, probabilities and metrics of classes (classes.h).
#include "classes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <utility>

#include "losses.h"
#include "rf/io/error.h"
#include "rf/io/printable.h"
#include "rf/tasks/metrics.h"

namespace rf::tasks {

namespace {

// Whether all labels are integers in their shortest form.
bool all_integers(const std::vector<std::string>& labels) {
  return std::all_of(labels.begin(), labels.end(), [](const std::string& label) {
    int64_t value = 0;
    const auto [rest, error] = std::from_chars(label.data(), label.data() + label.size(), value);
    return error == std::errc() && std::to_string(value) == label;
  });
}

}  // namespace

void add_label(const data::Record& record, std::string label, std::vector<std::string>& labels) {
  if (label.empty()) fail("input", "{} must have a label, got an empty one", record.place());
  labels.push_back(std::move(label));
}

std::vector<std::string> strings_of(const data::Record& record, const std::string& column, Items items) {
  std::vector<std::string> strings;
  const nlohmann::json& list = record.at(column);
  if (!list.is_array()) {
    fail("input", "{} must have a list of {} as {}, got another value", record.place(),
         items == Items::kTexts ? "texts" : "labels", column);
  }
  for (const nlohmann::json& item : list) {
    const std::optional<std::string> text = data::text_of(item);
    if (!text || (items == Items::kTexts && !item.is_string())) {
      fail("input", "{} must have {} in {}, got another value", record.place(),
           items == Items::kTexts ? "texts" : "labels", column);
    }
    strings.push_back(*text);
  }
  return strings;
}

std::vector<std::string> training_labels(std::span<const data::Record> records, std::vector<std::string> labels) {
  std::sort(labels.begin(), labels.end());
  labels.erase(std::unique(labels.begin(), labels.end()), labels.end());
  if (all_integers(labels)) {
    std::sort(labels.begin(), labels.end(),
              [](const std::string& a, const std::string& b) { return std::stoll(a) < std::stoll(b); });
  }
  if (labels.size() == 1) {
    fail("input", "{} must have at least two labels, got {} alone", *records.front().source,
         io::printable(labels.front()));
  }
  return labels;
}

void learn_label_lists(std::span<const data::Record> records, TaskSettings& settings) {
  std::vector<std::string> labels;
  for (const data::Record& record : records) {
    for (std::string& label : strings_of(record, settings.columns.at("labels"), Items::kLabels)) {
      add_label(record, std::move(label), labels);
    }
  }
  if (labels.empty()) fail("input", "{} must have labels, got none", *records.front().source);
  settings.labels = training_labels(records, std::move(labels));
}

void set_number_outputs(ModelConfig& config, int64_t num_labels, const char* problem_type) {
  config.num_labels = num_labels;
  config.id2label.clear();
  config.problem_type = problem_type;
}

void check_labels(const std::vector<std::string>& labels, const char* task) {
  if (labels.size() < 2) fail("task", "{} must have at least two labels, got {}", task, labels.size());
  const std::set<std::string_view> different(labels.begin(), labels.end());
  if (different.size() < labels.size()) {
    fail("task", "the labels of {} must differ, got {}", task, fmt::join(labels, ", "));
  }
}

Labels::Labels(std::vector<std::string> names, Ids ids) : names_(std::move(names)), number_ids_(ids) {
  for (size_t i = 0; i < names_.size(); ++i) ids_.emplace(names_[i], static_cast<int64_t>(i));
}

int64_t Labels::id(const std::string& place, const std::string& label) const {
  constexpr size_t kShownLabels = 20;
  const auto found = ids_.find(label);
  if (found != ids_.end()) return found->second;
  if (number_ids_ == Ids::kTaken) {
    for (size_t i = 0; i < names_.size(); ++i) {
      if (label == std::to_string(i)) return static_cast<int64_t>(i);
    }
  }
  std::vector<std::string> known;
  for (const std::string& name : std::span(names_).first(std::min(names_.size(), kShownLabels))) {
    known.push_back(io::printable(name));
  }
  if (names_.size() > kShownLabels) known.emplace_back("..");
  fail("input", "{} must have a label of the {}, {}, got {}", place,
       number_ids_ == Ids::kTaken ? "model" : "training file", fmt::join(known, ", "), io::printable(label));
}

void Labels::set_outputs(ModelConfig& config) const {
  config.num_labels = static_cast<int64_t>(names_.size());
  config.id2label.clear();
  for (size_t i = 0; i < names_.size(); ++i) config.id2label[static_cast<int64_t>(i)] = names_[i];
}

double sigmoid(double logit) { return 1 / (1 + std::exp(-logit)); }

std::vector<double> softmax(std::span<const double> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> values;
  double sum = 0;
  for (const double logit : logits) sum += values.emplace_back(std::exp(logit - largest));
  for (double& value : values) value /= sum;
  return values;
}

size_t greatest(std::span<const double> values) {
  return static_cast<size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

nlohmann::json class_metrics_json(const std::vector<std::vector<int64_t>>& confusion) {
  const ClassMetrics metrics = class_metrics(confusion);
  nlohmann::json json = {{"accuracy", number_or_null(metrics.accuracy)},
                         {"macro_f1", number_or_null(metrics.macro_f1)},
                         {"matthews", number_or_null(metrics.matthews)}};
  if (confusion.size() == 2) json["f1"] = number_or_null(metrics.f1);
  return json;
}

std::vector<std::vector<int64_t>> class_confusion(std::span<const Scored> scored, int64_t classes) {
  std::vector<int64_t> gold, predicted;
  for (const Scored& one : scored) {
    gold.push_back(one.example->targets[0]);
    predicted.push_back(static_cast<int64_t>(greatest(one.scores)));
  }
  return confusion_matrix(gold, predicted, classes);
}

std::vector<TaskColumn> text_columns(const char* target) {
  using Use = TaskColumn::Use;
  return {{"text", Use::kInput}, {"pair", Use::kOptionalInput}, {target, Use::kTarget}};
}

TextLabels::TextLabels(const TaskSettings& settings, std::shared_ptr<const text::Tokenizer> tokenizer, const char* task,
                       const char* problem_type)
    : RowTask(settings, std::move(tokenizer)),
      labels_(settings.labels, settings.ids_are_labels ? Labels::Ids::kTaken : Labels::Ids::kRefused),
      problem_type_(problem_type) {
  check_labels(settings.labels, task);
}

void TextLabels::set_outputs(ModelConfig& config) const {
  labels_.set_outputs(config);
  config.problem_type = problem_type_;
}

Example TextLabels::example(const data::Record& record, Targets targets) {
  Example example;
  add_text_input(record, settings_, rows_, example);
  if (targets == Targets::kNeeded) example.targets = targets_of(record);
  return example;
}

Scores TextLabels::scores(const Example& example, const Logits& logits) const {
  return pooled(example, logits, settings_.pooling).front();
}

}  // namespace rf::tasks
