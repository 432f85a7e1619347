// Records of training runs (training_record.h).
#include "training_record.h"

#include <algorithm>
#include <filesystem>

#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/train/training_curve.h"
#include "verdict.h"

namespace rf::reproduce {

namespace {

std::string record_path(const std::string& directory) {
  return directory + ".training.json";
}

double seconds_of(const nlohmann::json& record) {
  double seconds = 0;
  for (const nlohmann::json& part : record.at("parts")) seconds += part.at("seconds").get<double>();
  return seconds;
}

// The record of a run; null: there is none.
nlohmann::json record_of(const std::string& directory) {
  const std::string path = record_path(directory);
  return std::filesystem::exists(path) ? io::read_json(path) : nlohmann::json();
}

// The same with every null in it as number_of has it.
nlohmann::json with_infinities(nlohmann::json values) {
  for (nlohmann::json& value : values) {
    if (value.is_structured()) {
      value = with_infinities(std::move(value));
    } else if (value.is_null()) {
      value = number_of(value);
    }
  }
  return values;
}

void write_record(const std::string& path, const nlohmann::json& record) {
  io::write_file(path, record.dump(1) + "\n");
}

// The bytes of all metrics in a run directory; a tuning has a directory for each learning rate and seed.
uintmax_t logged_bytes(const std::string& directory) {
  namespace fs = std::filesystem;
  uintmax_t bytes = 0;
  if (!fs::exists(directory)) return bytes;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.path().filename() == "metrics.jsonl") bytes += entry.file_size();
  }
  return bytes;
}

// The seconds of training that a run's metrics have; 0 of a run without metrics as pretraining writes them.
double logged_seconds(const std::string& directory) {
  if (!std::filesystem::exists(directory + "/metrics.jsonl")) return 0;
  double seconds = 0;
  try {
    for (const double of_line : train::training_curve(directory).seconds) seconds += of_line;
  } catch (const Error&) {
    return 0;
  }
  return seconds;
}

}  // namespace

TrainingRecord::TrainingRecord(const Context& context, std::string directory, const nlohmann::json& settings,
                               const std::string& data)
    : directory_(std::move(directory)), path_(record_path(directory_)), before_(record_of(directory_)) {
  namespace fs = std::filesystem;
  fs::create_directories(fs::path(path_).parent_path());
  // The parts of earlier processes are valid while the run they began is there.
  const bool goes_on = fs::exists(directory_) && before_.is_object();
  if (goes_on && before_.at("settings") == settings) record_ = before_;
  record_["settings"] = settings;
  record_["parts"] = goes_on ? before_.at("parts") : nlohmann::json::array();
  if (!record_["parts"].empty() && record_["parts"].back().at("seconds") == 0) {  // that process was killed
    record_["parts"].back()["seconds"] = std::max(0.0, logged_seconds(directory_) - seconds_of(record_));
  }
  logged_before_ = logged_bytes(directory_);
  if (!data.empty()) record_["data"] = data;
  record_["finished"] = false;
  nlohmann::json part = context.process;
  part["seconds"] = 0;
  record_["parts"].push_back(std::move(part));
  write();
}

TrainingRecord::~TrainingRecord() {
  if (has_ended_ || std::uncaught_exceptions() == exceptions_) return;
  try {
    if (logged_bytes(directory_) != logged_before_) {
      end(false);
    } else if (before_.is_null()) {
      std::filesystem::remove(path_);
    } else {
      write_record(path_, before_);
    }
  } catch (const std::exception&) {  // the error that ended the run is the one to show
  }
}

void TrainingRecord::end(bool is_finished) {
  has_ended_ = true;
  record_["parts"].back()["seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  record_["seconds"] = seconds_of(record_);
  record_["finished"] = is_finished;
  write();
}

void TrainingRecord::keep(nlohmann::json outcome) {
  record_["outcome"] = std::move(outcome);
  write();
}

void TrainingRecord::write() const {
  write_record(path_, record_);
}

nlohmann::json finished_outcome(const std::string& directory, const nlohmann::json& settings, const std::string& data) {
  const nlohmann::json record = record_of(directory);
  if (record.is_null() || !record.value("finished", false) || record.at("settings") != settings) return {};
  if (const std::string of_run = record.value("data", data); of_run != data) {
    fail("reproduce", "{} must be of this data, got a run of other data: remove it and its record to train it again",
         directory);
  }
  return with_infinities(record.value("outcome", nlohmann::json()));
}

nlohmann::json kept_reading(const std::string& directory, const std::string& name, const nlohmann::json& settings) {
  const nlohmann::json record = record_of(directory);
  if (!record.contains("readings") || !record["readings"].contains(name)) return {};
  const nlohmann::json& reading = record["readings"][name];
  return reading.at("settings") == settings ? with_infinities(reading.at("values")) : nlohmann::json();
}

void keep_reading(const std::string& directory, const std::string& name, const nlohmann::json& settings,
                  const nlohmann::json& values) {
  nlohmann::json record = record_of(directory);
  if (record.is_null()) return;
  record["readings"][name] = {{"settings", settings}, {"values", values}};
  write_record(record_path(directory), record);
}

nlohmann::json training_of(const std::string& arm, uint64_t seed, const std::string& directory) {
  nlohmann::json entry = {{"arm", arm}, {"seed", seed}};
  const nlohmann::json record = record_of(directory);
  if (!record.is_null()) {
    entry["seconds"] = record.value("seconds", 0.0);
    entry["parts"] = record.at("parts");
    const nlohmann::json schedule = record.at("settings").value("schedule", nlohmann::json::object());
    if (schedule.contains("learning_rate")) entry["learning_rate"] = schedule.at("learning_rate");
  }
  return entry;
}

void log_training(const Context& context, const std::string& arm, uint64_t seed, const std::string& directory) {
  context.log.training.push_back(training_of(arm, seed, directory));
}

}  // namespace rf::reproduce
