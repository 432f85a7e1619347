// Records to examples (finetune_data.h).
#include "finetune_data.h"

#define XXH_INLINE_ALL
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "rf/data/random.h"
#include "rf/io/error.h"
#include "rf/io/nearest_name.h"
#include "rf/io/printable.h"

namespace rf::train {

namespace {

constexpr const char* kId = "id";

std::string dumped(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

uint64_t hash_of(const std::string& text) {
  return XXH3_64bits(text.data(), text.size());
}

// Whether a field is one of several with the column's name: choices0, choices1, ..
bool is_numbered(const std::string& name, const std::string& column) {
  return name.size() > column.size() && name.starts_with(column) &&
         std::all_of(name.begin() + static_cast<ptrdiff_t>(column.size()), name.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

// For an optional column that is not named: whether the training records have it; all or none must.
bool all_have(const std::vector<data::Record>& records, const std::string& column) {
  const auto has = [&](const data::Record& record) { return record.find(column) != nullptr; };
  const auto with = std::find_if(records.begin(), records.end(), has);
  if (with == records.end()) return false;
  const auto without = std::find_if_not(records.begin(), records.end(), has);
  if (without == records.end()) return true;
  fail("input", "{} must have a field {}, as {} has, got none", without->place(), column, with->place());
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

// A hash of everything that the model reads of a record.
uint64_t hash_of_inputs(const data::Record& record, const TaskKind& kind, const TaskSettings& settings) {
  std::string all;
  for (const TaskColumn& column : kind.columns) {
    const auto field = settings.columns.find(column.name);
    if (column.use == TaskColumn::Use::kTarget || field == settings.columns.end()) continue;
    for (const auto& [name, value] : record.fields.items()) {
      if (name == field->second || is_numbered(name, field->second)) all += dumped(value) + '\n';
    }
  }
  return hash_of(all);
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

std::vector<data::Record> read_task_records(const data::RecordOptions& options, const std::string& name) {
  std::vector<data::Record> records;
  data::RecordReader(options).read([&](data::Record& record) { records.push_back(std::move(record)); });
  if (records.empty()) {
    fail("input", "the {} file must have at least one record, got none in {}", name, fmt::join(options.inputs, ", "));
  }
  return records;
}

std::vector<data::Record> take_fraction(std::vector<data::Record>& records, double fraction, uint64_t seed) {
  const auto count = static_cast<int64_t>(records.size());
  if (count < 2) fail("finetune", "valid-fraction needs at least two records to divide, got {}", count);
  const int64_t taken = std::clamp<int64_t>(std::llround(fraction * static_cast<double>(count)), 1, count - 1);
  const data::Permutation order(count, seed, data::Stream::kSplit, 0);
  std::vector<bool> is_taken(records.size());
  for (int64_t i = 0; i < taken; ++i) is_taken[static_cast<size_t>(order(i))] = true;
  std::vector<data::Record> kept, out;
  for (size_t i = 0; i < records.size(); ++i) (is_taken[i] ? out : kept).push_back(std::move(records[i]));
  records = std::move(kept);
  return out;
}

TaskSplit make_split(Task& task, std::vector<data::Record> records) {
  TaskSplit split;
  for (const data::Record& record : records) split.examples.push_back(task.example(record, Targets::kNeeded));
  split.records = std::move(records);
  return split;
}

int64_t count_shared(const std::vector<data::Record>& train, const std::vector<data::Record>& records,
                     const TaskKind& kind, const TaskSettings& settings) {
  std::unordered_set<uint64_t> seen;
  for (const data::Record& record : train) seen.insert(hash_of_inputs(record, kind, settings));
  return std::count_if(records.begin(), records.end(), [&](const data::Record& record) {
    return seen.contains(hash_of_inputs(record, kind, settings));
  });
}

std::vector<std::string> single_example_classes(const TaskSplit& train, const TaskSettings& settings) {
  std::vector<int64_t> counts(settings.labels.size(), 0);
  std::vector<size_t> places(settings.labels.size(), 0);
  for (size_t i = 0; i < train.examples.size(); ++i) {
    for (const int64_t target : train.examples[i].targets) {
      if (static_cast<size_t>(target) >= counts.size()) continue;  // for tasks whose targets are not labels
      ++counts[static_cast<size_t>(target)];
      places[static_cast<size_t>(target)] = i;
    }
  }
  std::vector<std::string> sentences;
  for (size_t k = 0; k < counts.size(); ++k) {
    if (counts[k] != 1) continue;
    sentences.push_back(fmt::format("warning: the label {} has one training example, {}",
                                    io::printable(settings.labels[k]), train.records[places[k]].place()));
  }
  return sentences;
}

std::string records_identity(const std::vector<data::Record>& records) {
  uint64_t hash = 0;
  for (const data::Record& record : records) hash = hash_of(fmt::format("{:x}{}", hash, dumped(record.fields)));
  return fmt::format("{:016x}", hash);
}

std::vector<std::vector<size_t>> epoch_batches(const std::vector<Example>& examples, int64_t batch, uint64_t seed,
                                               int64_t epoch) {
  constexpr int64_t kPoolBatches = 50;
  const auto count = static_cast<int64_t>(examples.size());
  const data::Permutation order(count, seed, data::Stream::kExampleOrder, epoch);
  std::vector<size_t> drawn;
  for (int64_t i = 0; i < count; ++i) drawn.push_back(static_cast<size_t>(order(i)));
  for (int64_t begin = 0; begin < count; begin += batch * kPoolBatches) {
    const int64_t end = std::min(count, begin + batch * kPoolBatches);
    std::stable_sort(drawn.begin() + begin, drawn.begin() + end,
                     [&](size_t a, size_t b) { return examples[a].longest_row() < examples[b].longest_row(); });
  }
  const int64_t batches = (count + batch - 1) / batch;
  const data::Permutation batch_order(batches, seed, data::Stream::kExampleOrder, epoch, /*index=*/1);
  std::vector<std::vector<size_t>> all;
  for (int64_t i = 0; i < batches; ++i) {
    const int64_t begin = batch_order(i) * batch;
    all.emplace_back(drawn.begin() + begin, drawn.begin() + std::min(count, begin + batch));
  }
  return all;
}

}  // namespace rf::train
