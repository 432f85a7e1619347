// Reads the files of a fine-tuning, checks them against each other, and makes examples of their records.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "rf/train/finetune.h"
#include "tasks/task_model.h"

namespace rf::train {

// The field of every column that the task reads: those given, otherwise the columns' own names; optional columns if the
// training records have them, and always "id", which any record may have. Throws Error for a column that the task does
// not have, and if only some records have an optional one.
std::map<std::string, std::string> resolve_columns(const TaskKind& kind,
                                                   const std::map<std::string, std::string>& given,
                                                   const std::vector<data::Record>& train);

// Changes the fields of the given columns of a fine-tuned model's task. Throws Error for a column that it does not
// read.
void rename_columns(const std::map<std::string, std::string>& given, TaskSettings& settings);

// Throws Error, naming the files, if they have no record; `name`: "train".
std::vector<data::Record> read_task_records(const data::RecordOptions& options, const std::string& name);
// Removes `fraction` of the records, drawn with the seed, and returns them in their order; at least one is removed and
// one is left. Throws Error if there are fewer than two.
std::vector<data::Record> take_fraction(std::vector<data::Record>& records, double fraction, uint64_t seed);

TaskSplit make_split(Task& task, std::vector<data::Record> records);

// The number of records that have the inputs of a training record.
int64_t count_shared(const std::vector<data::Record>& train, const std::vector<data::Record>& records,
                     const TaskKind& kind, const TaskSettings& settings);
// A warning for each class with only one training example, with its file and line.
std::vector<std::string> single_example_classes(const TaskSplit& train, const TaskSettings& settings);
// A hash of every field of the records.
std::string records_identity(const std::vector<data::Record>& records);

// Batches of examples with similar lengths, as indices of examples, each once: a pool of 50 batches is drawn by (seed,
// epoch) and divided by length, and the order of the batches is drawn again.
std::vector<std::vector<size_t>> epoch_batches(const std::vector<Example>& examples, int64_t batch, uint64_t seed,
                                               int64_t epoch);

}  // namespace rf::train
