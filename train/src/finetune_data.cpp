// Records and batches of a fine-tuning (finetune_data.h).
#include "finetune_data.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "rf/data/random.h"
#include "rf/io/error.h"
#include "rf/io/printable.h"

namespace rf::train {

using tasks::Example, tasks::TaskColumn, tasks::TaskKind, tasks::TaskSettings;

namespace {

std::string dumped(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

uint64_t hash_of(const std::string& text) { return XXH3_64bits(text.data(), text.size()); }

// Whether a field is one of several with the column's name: choices0, choices1, ..
bool is_numbered(const std::string& name, const std::string& column) {
  return name.size() > column.size() && name.starts_with(column) &&
         std::all_of(name.begin() + static_cast<ptrdiff_t>(column.size()), name.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
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

int64_t count_shared(const std::vector<data::Record>& train, const std::vector<data::Record>& records,
                     const TaskKind& kind, const TaskSettings& settings) {
  std::unordered_set<uint64_t> seen;
  for (const data::Record& record : train) seen.insert(hash_of_inputs(record, kind, settings));
  return std::count_if(records.begin(), records.end(), [&](const data::Record& record) {
    return seen.contains(hash_of_inputs(record, kind, settings));
  });
}

std::vector<std::string> single_example_classes(const tasks::Split& train, const TaskSettings& settings) {
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
