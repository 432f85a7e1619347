// Who trained a run, and with what: a file beside the run directory, <directory>.training.json, which is written when
// training begins and completed when it ends. A run that was interrupted has a part for each process:
//
//   {"settings": {..}, "data": "..", "finished": true, "seconds": .., "parts": [{"command", "commit", "cpu", "cores",
//    "threads", "target", "torch", "seconds"}, ..], "outcome": {..}, "readings": {..}}
//
// A process that ends with an error before it has logged anything leaves the record as it was. That of a run directory
// which was removed is begun anew; with other settings, such as more learning rates of a tuning, its parts stay.
//
// `seconds` are those of training with its evaluations; of a process that was killed, those of training alone that the
// run's metrics have. `data` is a hash of what the run was trained on; records of earlier versions lack it. `outcome`
// is what an experiment reads of the run, which then needs no weights.
#pragma once

#include <chrono>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>

#include "experiment.h"

namespace rf::reproduce {

class TrainingRecord {
 public:
  TrainingRecord(const TrainingRecord&) = delete;
  TrainingRecord& operator=(const TrainingRecord&) = delete;
  ~TrainingRecord();
  // `settings`: the run file, or the settings of a fine-tuning. `data`: "" where finished_outcome is not asked.
  TrainingRecord(const Context& context, std::string directory, const nlohmann::json& settings,
                 const std::string& data = "");
  // The run has ended, or was interrupted.
  void end(bool is_finished);
  // Writes what the finished run says into its record.
  void keep(nlohmann::json outcome);

 private:
  void write() const;

  std::string directory_, path_;
  nlohmann::json record_, before_;  // before_: what the file had, or null
  bool has_ended_ = false;
  uintmax_t logged_before_ = 0;  // bytes
  int exceptions_ = std::uncaught_exceptions();
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// The outcome of a run that finished with these settings; null: there is none. A number in it that is not finite comes
// back as infinity, as in kept_reading. Throws Error if the run was trained on other data.
nlohmann::json finished_outcome(const std::string& directory, const nlohmann::json& settings, const std::string& data);

// What an experiment of this name read of the run's weights, with these settings; null: nothing is kept. It is in the
// record as {"readings": {"<name>": {"settings", "values"}}}.
nlohmann::json kept_reading(const std::string& directory, const std::string& name, const nlohmann::json& settings);
// Keeps it in the record of a run that has ended, if there is one.
void keep_reading(const std::string& directory, const std::string& name, const nlohmann::json& settings,
                  const nlohmann::json& values);

// The record of a finished run, as {"arm", "seed", "seconds", "parts", and "learning_rate" where the settings have
// one};
// {"arm", "seed"} alone of a run without a record.
nlohmann::json training_of(const std::string& arm, uint64_t seed, const std::string& directory);

// Adds it to the log.
void log_training(const Context& context, const std::string& arm, uint64_t seed, const std::string& directory);

}  // namespace rf::reproduce
