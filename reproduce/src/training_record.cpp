// Records of training runs (training_record.h).
#include "training_record.h"

#include <filesystem>

#include "rf/io/files.h"

namespace rf::reproduce {

namespace {

std::string record_path(const std::string& directory) {
  return directory + ".training.json";
}

}  // namespace

TrainingRecord::TrainingRecord(const Context& context, std::string directory, const nlohmann::json& settings)
    : path_(record_path(directory)) {
  namespace fs = std::filesystem;
  fs::create_directories(fs::path(path_).parent_path());
  // The parts of earlier processes are valid while the run they began is there.
  if (fs::exists(path_) && fs::exists(directory)) record_ = io::read_json(path_);
  if (!record_.is_object()) record_ = {{"settings", settings}, {"parts", nlohmann::json::array()}};
  record_["finished"] = false;
  nlohmann::json part = context.process;
  part["seconds"] = 0;
  record_["parts"].push_back(std::move(part));
  write();
}

void TrainingRecord::end(bool is_finished) {
  record_["parts"].back()["seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  double seconds = 0;
  for (const nlohmann::json& part : record_["parts"]) seconds += part.at("seconds").get<double>();
  record_["seconds"] = seconds;
  record_["finished"] = is_finished;
  write();
}

void TrainingRecord::keep(nlohmann::json outcome) {
  record_["outcome"] = std::move(outcome);
  write();
}

void TrainingRecord::write() const {
  io::write_file(path_, record_.dump(1) + "\n");
}

nlohmann::json finished_outcome(const std::string& directory, const nlohmann::json& settings) {
  const std::string path = record_path(directory);
  if (!std::filesystem::exists(path)) return {};
  const nlohmann::json record = io::read_json(path);
  if (!record.value("finished", false) || record.at("settings") != settings) return {};
  return record.value("outcome", nlohmann::json());
}

nlohmann::json training_of(const std::string& arm, uint64_t seed, const std::string& directory) {
  nlohmann::json entry = {{"arm", arm}, {"seed", seed}};
  const std::string path = record_path(directory);
  if (std::filesystem::exists(path)) {
    const nlohmann::json record = io::read_json(path);
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
