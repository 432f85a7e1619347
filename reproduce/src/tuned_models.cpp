// Task files and tuned models (tuned_models.h).
#include "tuned_models.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <unordered_set>

#include "data_sets.h"
#include "rf/io/files.h"
#include "rf/model/config.h"
#include "rf/nn/model.h"
#include "rf/nn/seed_scope.h"
#include "shared_training.h"
#include "training_record.h"

namespace rf::reproduce {

namespace {

namespace fs = std::filesystem;

std::string inputs_of(nlohmann::json record) {
  record.erase("label");
  return record.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void write_records(const std::string& path, const std::vector<nlohmann::json>& records) {
  std::string lines;
  for (const nlohmann::json& record : records) {
    lines += record.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }
  io::write_file(path, lines);
}

double value_of(const nlohmann::json& metrics, const std::string& name) {
  const nlohmann::json& value = metrics.at(name);
  return value.is_null() ? 0 : value.get<double>();
}

// Adds the metric with each rate of an arm, as a loss, the first time that the arm is tuned.
void log_rates(const Context& context, const std::string& arm, const nlohmann::json& rates) {
  for (const TriedRates& other : context.log.rates) {
    if (other.arm == arm) return;
  }
  TriedRates tried{.arm = arm, .rates = {}, .losses = {}};
  for (const nlohmann::json& rate : rates) {
    tried.rates.push_back(rate.at("learning_rate"));
    tried.losses.push_back(-value_of(rate, "mean"));
  }
  context.log.rates.push_back(std::move(tried));
}

}  // namespace

void read_set(const Context& context, const std::string& file, data::Quotes quotes,
              const std::function<void(data::Record&)>& record) {
  data::RecordReader({.inputs = {context.data_dir + "/" + file}, .quotes = quotes}).read(record);
}

train::TaskFiles task_files(const Context& context, const TaskSource& source,
                            const std::function<TaskRecords()>& read) {
  const nlohmann::json made_of = {{"how", source.how}, {"data", identity_of(context.data_dir, source.files)}};
  const std::string directory = fmt::format("{}/corpus/tasks/{}", context.shared_dir, source.name);
  const std::string mark = directory + "/task.json";
  const auto path = [&](const char* split) { return fmt::format("{}/{}.jsonl", directory, split); };
  share(context, "tasks", {source.name}, [&](size_t) {
    if (fs::exists(mark) && io::read_json(mark) == made_of) return 0;
    fs::create_directories(directory);
    TaskRecords records = read();
    std::unordered_set<std::string> seen;
    for (const nlohmann::json& record : records.train) seen.insert(inputs_of(record));
    for (std::vector<nlohmann::json>* held_out : {&records.valid, &records.test}) {
      std::erase_if(*held_out, [&](const nlohmann::json& record) { return seen.contains(inputs_of(record)); });
    }
    write_records(path("train"), records.train);
    write_records(path("valid"), records.valid);
    write_records(path("test"), records.test);
    io::write_file(mark, made_of.dump(2) + "\n");
    return 0;
  });
  train::TaskFiles files{.train = {path("train")}, .valid = {path("valid")}, .test = {}};
  if (fs::file_size(path("test")) > 0) files.test = {path("test")};
  return files;
}

Files TunedTask::files() const {
  Files all;
  for (const std::string* file : {&train, &valid, &test}) {
    if (!file->empty()) all.push_back(*file);
  }
  return all;
}

void to_json(nlohmann::json& json, const TunedTask& task) {
  json = {{"name", task.name}, {"task", task.task}, {"metric", task.metric}};
  if (!task.columns.empty()) json["columns"] = task.columns;
  if (!task.train.empty()) json["train"] = task.train;
  if (!task.valid.empty()) json["valid"] = task.valid;
  if (!task.test.empty()) json["test"] = task.test;
  if (task.most) json["most"] = *task.most;
  if (!task.pretrained.empty()) json["pretrained"] = task.pretrained;
}

void to_json(nlohmann::json& json, const Tuning& tuning) {
  json = {{"epochs", tuning.epochs}, {"batch", tuning.batch}, {"learning_rates", tuning.learning_rates}};
  if (tuning.max_length > 0) json["max_length"] = tuning.max_length;
  if (!tuning.classifier_pooling.empty()) json["classifier_pooling"] = tuning.classifier_pooling;
  if (!tuning.dictionary.empty()) json["dictionary"] = tuning.dictionary;
}

train::TaskFiles task_files(const Context& context, const TunedTask& task) {
  nlohmann::json how = task;
  how.erase("pretrained");  // experiments with other bodies share the files
  return task_files(context, {task.name, how, task.files()}, [&] {
    const auto records = [&](const std::string& file, int64_t max_records) {
      std::vector<nlohmann::json> all;
      if (file.empty()) return all;
      read_set(context, file, data::Quotes::kText, [&](data::Record& record) {
        if (max_records > 0 && std::ssize(all) == max_records) return;
        nlohmann::json& fields = all.emplace_back(nlohmann::json::object());
        for (const auto& [name, field] : task.columns) fields[name] = record.text(field);
      });
      return all;
    };
    return TaskRecords{records(task.train, task.most.value_or(0)), records(task.valid, 0), records(task.test, 0)};
  });
}

Tuned tune(const Context& context, const TunedTask& task, const Tuning& tuning, const train::TaskFiles& files,
           const TunedBody& body) {
  train::FinetuneOptions options;
  options.task.kind = task.task;
  options.task.max_length = tuning.max_length;
  options.task.metric = task.metric;
  options.model_dir = body.model_dir;
  options.output_dir = body.directory;
  options.files = files;
  options.learning_rates = tuning.learning_rates;
  options.seed = body.seed;
  options.epochs = tuning.epochs;
  options.batch = tuning.batch;
  options.classifier_pooling = tuning.classifier_pooling;
  if (!tuning.dictionary.empty()) options.load.dictionary = context.data_dir + "/" + tuning.dictionary;
  options.note = context.note;
  fs::create_directories(fs::path(body.directory).parent_path());
  std::optional<TrainingRecord> record;
  if (!fs::exists(body.directory + "/report.json")) record.emplace(context, body.directory, nlohmann::json(tuning));
  const train::FinetuneReport done = train::finetune(options, context.progress);
  if (record) record->end(done.signal == 0);
  if (done.signal != 0) return {.signal = done.signal};
  const std::string name = fmt::format("{} on {}", body.arm, task.name);
  log_training(context, name, body.seed, body.directory);
  log_rates(context, name, done.report.at("rates"));
  const std::string split = files.test.empty() ? "valid" : "test";
  const auto measured = [&](const char* what) { return value_of(done.report.at(what).at(split), task.metric); };
  const nlohmann::json& chosen = done.report.at("chosen");
  return {.model = measured("chosen"),
          .baseline = measured("baseline"),
          .bag_of_words = measured("bag_of_words"),
          .train = value_of(chosen.at("train"), task.metric),
          .valid = value_of(chosen.at("valid"), task.metric),
          .learning_rate = chosen.at("learning_rate")};
}

ArmTuner::ArmTuner(const Context& context, TunedTask task, Tuning tuning, train::TaskFiles files)
    : context_(context), task_(std::move(task)), tuning_(std::move(tuning)), files_(std::move(files)) {}

Tuned ArmTuner::tune(const TunedBody& body) {
  Tuning tuning = tuning_;
  if (const auto chosen = rates_.find(body.arm); chosen != rates_.end()) tuning.learning_rates = {chosen->second};
  const Tuned tuned = reproduce::tune(context_, task_, tuning, files_, body);
  if (tuned.signal == 0) rates_.emplace(body.arm, tuned.learning_rate);
  return tuned;
}

std::vector<double> tuning_rates(Scale scale) {
  if (scale == Scale::kTiny) return {5e-4};
  return {2e-4, 5e-4, 1e-3};
}

TunedBody random_body(const Context& context, const TunedBody& body) {
  return random_body(context, body, body.model_dir + "/random-body");
}

TunedBody random_body(const Context& context, const TunedBody& body, const std::string& directory) {
  TunedBody random{.arm = body.arm + ", random body",
                   .model_dir = directory,
                   .directory = body.directory + "-random-body",
                   .seed = body.seed};
  if (fs::exists(random.model_dir + "/model.safetensors")) return random;
  if (context.note) context.note(fmt::format("a body of random weights like {}", body.model_dir));
  fs::create_directories(random.model_dir);
  for (const fs::directory_entry& entry : fs::directory_iterator(body.model_dir)) {
    const fs::path name = entry.path().filename();
    if (!entry.is_regular_file() || name == "model.safetensors") continue;
    fs::copy_file(entry.path(), random.model_dir / name, fs::copy_options::overwrite_existing);
  }
  const nn::SeedScope drawn(body.seed);
  const ModelConfig config = load_config(body.model_dir);
  nn::save_model(nn::Model(config, config.head()), random.model_dir);
  return random;
}

void add_tuned(Result& result, const std::string& measure, const TunedBody& body, const Tuned& tuned) {
  const auto add = [&](const std::string& arm, double value) {
    result.measures.push_back({measure, arm, body.seed, value});
  };
  add(body.arm, tuned.model);
  result.measures.push_back({measure + " on training records", body.arm, body.seed, tuned.train});
  add(body.arm + ", bag of words", tuned.bag_of_words);
  add(body.arm + ", baseline", tuned.baseline);
}

}  // namespace rf::reproduce
