// Converts records to examples, and computes the results of models (rf/tasks/examples.h).
#include "rf/tasks/examples.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "rf/io/error.h"
#include "rf/io/nearest_name.h"
#include "rf/io/printable.h"
#include "rf/model/config.h"
#include "rf/model/foreign_models.h"

namespace rf::tasks {

namespace {

constexpr const char* kId = "id";

// For an optional column that is not named: whether the training records have it; all or none must.
bool all_have(const std::vector<data::Record>& records, const std::string& column) {
  const auto has = [&](const data::Record& record) { return record.find(column) != nullptr; };
  const auto with = std::find_if(records.begin(), records.end(), has);
  if (with == records.end()) return false;
  const auto without = std::find_if_not(records.begin(), records.end(), has);
  if (without == records.end()) return true;
  fail("input", "{} must have a field {}, as {} has, got {}", without->place(), column, with->place(),
       without->fields.contains(column) ? "null" : "none");
}

// Throws Error for a column that is not one of `names`.
void check_names(const TaskKind& kind, const std::map<std::string, std::string>& given,
                 const std::vector<std::string_view>& names) {
  for (const auto& [name, field] : given) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    const std::string_view nearest = io::nearest_name(name, names);
    fail("task", "a column of {} must be one of {}, got {}{}", kind.name, fmt::join(names, ", "), io::printable(name),
         nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest));
  }
}

}  // namespace

std::map<std::string, std::string> resolve_columns(const TaskKind& kind,
                                                   const std::map<std::string, std::string>& given,
                                                   const std::vector<data::Record>& train) {
  std::vector<std::string_view> names = {kId};
  for (const TaskColumn& column : kind.columns) names.emplace_back(column.name);
  check_names(kind, given, names);
  std::map<std::string, std::string> fields;
  for (const TaskColumn& column : kind.columns) {
    const auto named = given.find(column.name);
    if (named != given.end()) {
      fields[column.name] = named->second;
    } else if (column.use != TaskColumn::Use::kOptionalInput || all_have(train, column.name)) {
      fields[column.name] = column.name;
    }
  }
  const auto id = given.find(kId);
  fields[kId] = id == given.end() ? kId : id->second;
  if (id != given.end()) static_cast<void>(train.front().at(id->second));  // a field that is named must exist
  return fields;
}

void rename_columns(const std::map<std::string, std::string>& given, TaskSettings& settings) {
  std::vector<std::string_view> names;
  for (const auto& [name, field] : settings.columns) names.emplace_back(name);
  check_names(task_kind(settings.kind), given, names);
  for (const auto& [name, field] : given) settings.columns[name] = field;
}

std::vector<data::Record> read_records(const data::RecordOptions& options, const std::string& name) {
  std::vector<data::Record> records;
  data::RecordReader(options).read([&](data::Record& record) { records.push_back(std::move(record)); });
  if (records.empty()) {
    fail("input", "the {} file must have at least one record, got none in {}", name, fmt::join(options.inputs, ", "));
  }
  return records;
}

Split make_split(Task& task, std::vector<data::Record> records) {
  Split split;
  for (const data::Record& record : records) split.examples.push_back(task.example(record, Targets::kNeeded));
  split.records = std::move(records);
  return split;
}

std::vector<Scored> Split::with(std::vector<Scores> scores) const {
  std::vector<Scored> scored;
  for (size_t i = 0; i < examples.size(); ++i) scored.push_back({&records[i], &examples[i], std::move(scores[i])});
  return scored;
}

Split Split::sample(size_t count) const {
  if (examples.size() <= count) return *this;
  Split some;
  for (size_t i = 0; i < count; ++i) {
    const size_t from = i * examples.size() / count;
    some.records.push_back(records[from]);
    some.examples.push_back(examples[from]);
  }
  return some;
}

std::shared_ptr<const text::Tokenizer> load_tokenizer(const std::string& model_dir, const text::LoadOptions& load) {
  const ModelConfig config = load_any_config(model_dir);
  auto tokenizer = std::make_shared<const text::Tokenizer>(text::Tokenizer::load(model_dir, load));
  const bool pads = config.family != Family::kDecoder;
  if (pads) tokenizer->vocabulary().require({text::SpecialRole::kPad}, "task");
  if (config.vocab_size < tokenizer->vocabulary().size()) {
    fail("task", "vocab_size of {} must be at least its vocabulary's {}, got {}", model_dir,
         tokenizer->vocabulary().size(), config.vocab_size);
  }
  if (config.is_decoder && pads)
    fail("task", "a task needs a model that attends both ways, got the causal one in {}", model_dir);
  return tokenizer;
}

void Evaluation::add(std::span<const size_t> indices, const Logits& logits) {
  std::vector<const Example*> chosen;
  for (const size_t i : indices) chosen.push_back(&examples_[i]);
  std::vector<Scores> scores = scores_of(task_, chosen, logits);
  for (size_t i = 0; i < indices.size(); ++i) scores_[indices[i]] = std::move(scores[i]);
  const Loss loss = loss_of(task_, chosen, logits, /*label_smoothing=*/0);
  for (size_t i = 0; i < indices.size(); ++i) loss_sums_[indices[i]] = loss.sum_of_example[i];
  terms_ += loss.terms;
}

Evaluated Evaluation::result() && {
  // In order of the examples, so that the loss does not depend on how they were batched.
  const double sum = std::accumulate(loss_sums_.begin(), loss_sums_.end(), 0.0);
  return {std::move(scores_), sum / static_cast<double>(std::max<int64_t>(1, terms_))};
}

}  // namespace rf::tasks
