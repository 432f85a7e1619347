// The files of a fine-tuning: read, checked against each other, and made into examples.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "rf/train/finetune.h"
#include "tasks/task_model.h"

namespace rf::train {

// The field of every column that the task reads: those given, otherwise the columns' own names; optional ones where the
// training records have them, and "id" always, for any record may have one. Throws Error for a column that the task
// does not have, and where some records have an optional one and others do not.
std::map<std::string, std::string> resolve_columns(const TaskKind& kind,
                                                   const std::map<std::string, std::string>& given,
                                                   const std::vector<data::Record>& train);

// The columns of a fine-tuned model's task that are given have other fields. Throws Error for one that it does not
// read.
void rename_columns(const std::map<std::string, std::string>& given, TaskSettings& settings);

// Throws Error, naming the files, where they have no record; `name`: "train".
std::vector<data::Record> read_task_records(const data::RecordOptions& options, const std::string& name);
// Takes `fraction` of the records out, drawn with the seed, in their order; at least one is taken and one stays. Throws
// Error where there are fewer than two.
std::vector<data::Record> take_fraction(std::vector<data::Record>& records, double fraction, uint64_t seed);

TaskSplit make_split(Task& task, std::vector<data::Record> records);

// How many of the records have the inputs of a training record.
int64_t count_shared(const std::vector<data::Record>& train, const std::vector<data::Record>& records,
                     const TaskKind& kind, const TaskSettings& settings);
// A sentence about each class with one training example, which names its place.
std::vector<std::string> single_example_classes(const TaskSplit& train, const TaskSettings& settings);
// A hash of every field of the records.
std::string records_identity(const std::vector<data::Record>& records);

// Examples of like lengths together: of a pool of 50 batches, drawn by (seed, epoch), those of like lengths go
// together, and the batches come in an order drawn again. Indices of examples, each once.
std::vector<std::vector<size_t>> epoch_batches(const std::vector<Example>& examples, int64_t batch, uint64_t seed,
                                               int64_t epoch);

}  // namespace rf::train
