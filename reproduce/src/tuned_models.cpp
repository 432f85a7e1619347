// Task files and tuned models (tuned_models.h).
#include "tuned_models.h"

#include <fmt/format.h>

#include <filesystem>
#include <unordered_set>

#include "data_sets.h"
#include "rf/io/files.h"

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
  if (!fs::exists(mark) || io::read_json(mark) != made_of) {
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
  }
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
  if (!tuning.dictionary.empty()) json["dictionary"] = tuning.dictionary;
}

train::TaskFiles task_files(const Context& context, const TunedTask& task) {
  return task_files(context, {task.name, task, task.files()}, [&] {
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
           const std::string& model_dir, const std::string& directory, uint64_t seed) {
  train::FinetuneOptions options;
  options.task.kind = task.task;
  options.task.max_length = tuning.max_length;
  options.task.metric = task.metric;
  options.model_dir = model_dir;
  options.output_dir = directory;
  options.files = files;
  options.learning_rates = tuning.learning_rates;
  options.seed = seed;
  options.epochs = tuning.epochs;
  options.batch = tuning.batch;
  if (!tuning.dictionary.empty()) options.load.dictionary = context.data_dir + "/" + tuning.dictionary;
  options.note = context.note;
  fs::create_directories(fs::path(directory).parent_path());
  const train::FinetuneReport done = train::finetune(options, context.progress);
  if (done.signal != 0) return {.signal = done.signal};
  const std::string split = files.test.empty() ? "valid" : "test";
  const auto measured = [&](const char* what) { return value_of(done.report.at(what).at(split), task.metric); };
  return {.model = measured("chosen"), .baseline = measured("baseline"), .bag_of_words = measured("bag_of_words")};
}

}  // namespace rf::reproduce
