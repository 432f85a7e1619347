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

train::TaskFiles task_files(const Context& context, const nlohmann::json& task) {
  TaskSource source{task.at("name"), task, {}};
  for (const char* split : {"train", "valid", "test"}) {
    if (task.contains(split)) source.files.push_back(task.at(split));
  }
  return task_files(context, source, [&] {
    const auto records = [&](const char* split, size_t max_records) {
      std::vector<nlohmann::json> all;
      if (!task.contains(split)) return all;
      read_set(context, task.at(split), data::Quotes::kText, [&](data::Record& record) {
        if (max_records > 0 && all.size() == max_records) return;
        nlohmann::json& fields = all.emplace_back(nlohmann::json::object());
        for (const auto& [name, field] : task.at("columns").items()) fields[name] = record.text(field);
      });
      return all;
    };
    return TaskRecords{records("train", task.at("most")), records("valid", 0), records("test", 0)};
  });
}

Tuned tune(const Context& context, const nlohmann::json& task, const nlohmann::json& tuning,
           const train::TaskFiles& files, const std::string& model_dir, const std::string& directory, uint64_t seed) {
  train::FinetuneOptions options;
  options.task.kind = task.at("task");
  options.task.max_length = tuning.at("max_length");
  options.task.metric = task.at("metric");
  options.model_dir = model_dir;
  options.output_dir = directory;
  options.files = files;
  options.learning_rates = tuning.at("learning_rates").get<std::vector<double>>();
  options.seed = seed;
  options.epochs = tuning.at("epochs");
  options.batch = tuning.at("batch");
  if (tuning.contains("dictionary")) {
    options.load.dictionary = context.data_dir + "/" + tuning.at("dictionary").get<std::string>();
  }
  options.note = context.note;
  fs::create_directories(fs::path(directory).parent_path());
  const train::FinetuneReport done = train::finetune(options, context.progress);
  if (done.signal != 0) return {.signal = done.signal};
  const std::string split = files.test.empty() ? "valid" : "test", metric = task.at("metric");
  return {.model = value_of(done.report.at("chosen").at(split), metric),
          .baseline = value_of(done.report.at("baseline").at(split), metric),
          .bag_of_words = value_of(done.report.at("bag_of_words").at(split), metric)};
}

}  // namespace rf::reproduce
