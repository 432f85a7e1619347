// What the experiments on tasks share: task files made from the sets of --data, and models tuned on them. Files are
// JSON lines with the task's own names of fields. Records of the valid and test files whose inputs are also in the
// train file are left out, because published sets share some.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "experiment.h"
#include "rf/data/records.h"
#include "rf/train/finetune.h"

namespace rf::reproduce {

// In JSON, members that are empty are absent.
struct TunedTask {
  std::string name;  // directory of the files: <scale>/corpus/tasks/<name>
  std::string task;  // as for roformer finetune,
  std::string metric;
  std::map<std::string, std::string> columns = {};  // with all columns
  std::string train = {}, valid = {}, test = {};    // files of --data, in which quotation marks are text;
                                                    // without test the valid file is measured
  std::optional<int64_t> most = {};                 // the first so many training records are used; 0: all
  std::string pretrained = {};                      // which of the experiment's designs made the models

  Files files() const;
};
void to_json(nlohmann::json& json, const TunedTask& task);

// Its training. In JSON, members that are empty are absent.
struct Tuning {
  int64_t epochs = 1, batch = 32;
  std::vector<double> learning_rates;
  int64_t max_length = 0;
  std::string classifier_pooling = {};  // as for roformer finetune
  std::string dictionary = {};          // jieba's, of --data, for a model whose tokens are words
};
void to_json(nlohmann::json& json, const Tuning& tuning);

// A task's records in memory, before they are written to files.
struct TaskRecords {
  std::vector<nlohmann::json> train, valid, test;  // test: may be empty
};
// How a task's files are made: `how`, of `files` of --data.
struct TaskSource {
  std::string name;
  nlohmann::json how;
  std::vector<std::string> files;
};
// The task's files. They are made unless there are files made from the same data. Valid and test records with the
// inputs of a training record are left out; all fields but `label` are inputs.
train::TaskFiles task_files(const Context& context, const TaskSource& source, const std::function<TaskRecords()>& read);
// The files of the sets that a task names.
train::TaskFiles task_files(const Context& context, const TunedTask& task);
// Calls `record` for each record of a file of --data.
void read_set(const Context& context, const std::string& file, data::Quotes quotes,
              const std::function<void(data::Record&)>& record);

// The metric of the chosen model; a rank correlation that is not defined is 0.
struct Tuned {
  double model = 0, baseline = 0, bag_of_words = 0;  // on the file that is measured
  double train = 0, valid = 0;                       // of the model, on a sample of the training records, and on valid
  double learning_rate = 0;                          // the one that was chosen
  int signal = 0;                                    // not 0: a signal ended it early, and nothing else is valid
};
// Rates for small models, of which the valid file chooses; scale tiny: one.
std::vector<double> tuning_rates(Scale scale);

// A model to tune: its body, and where the output of finetune goes.
struct TunedBody {
  std::string arm;  // as rules name it
  std::string model_dir, directory;
  uint64_t seed = 0;
};
Tuned tune(const Context& context, const TunedTask& task, const Tuning& tuning, const train::TaskFiles& files,
           const TunedBody& body);
// Tunes the bodies of arms, one seed after another: an arm's first body chooses the rate of its later ones.
class ArmTuner {
 public:
  ArmTuner(const Context& context, TunedTask task, Tuning tuning, train::TaskFiles files);
  Tuned tune(const TunedBody& body);

 private:
  const Context& context_;
  TunedTask task_;
  Tuning tuning_;
  train::TaskFiles files_;
  std::map<std::string, double> rates_;  // by arm
};
// The same with a body of random weights in a directory, an arm of its own: what fine-tuning learns without
// pretraining.
TunedBody random_body(const Context& context, const TunedBody& body, const std::string& directory);
// The same, in the body's own directory.
TunedBody random_body(const Context& context, const TunedBody& body);

// Measures of the model's arm, also on training records, and of the bag of words and the baseline of its inputs, which
// are "<arm>, bag of words" and "<arm>, baseline".
void add_tuned(Result& result, const std::string& measure, const TunedBody& body, const Tuned& tuned);

}  // namespace rf::reproduce
