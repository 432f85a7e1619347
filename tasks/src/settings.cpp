// task.json (rf/tasks/settings.h).
#include "rf/tasks/settings.h"

#include <initializer_list>
#include <nlohmann/json.hpp>

#include "model_task.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/strict_object.h"
#include "rf/tasks/task.h"

namespace rf::tasks {

namespace {

using io::name_of, text::Truncation;

template <typename T>
using Names = std::initializer_list<std::pair<const char*, T>>;

const Names<Truncation> kTruncations = {{"longest-first", Truncation::kLongestFirst},
                                        {"only-first", Truncation::kOnlyFirst},
                                        {"only-second", Truncation::kOnlySecond}};
const Names<Keep> kKeeps = {{"head", Keep::kHead}, {"tail", Keep::kTail}, {"head-tail", Keep::kHeadTail}};
const Names<Pooling> kPoolings = {{"mean", Pooling::kMean}, {"max", Pooling::kMax}};

constexpr int64_t kMaxWindows = int64_t{1} << 10;

std::vector<std::string> labels_of(const nlohmann::json* list, const std::string& where) {
  std::vector<std::string> labels;
  if (list == nullptr) return labels;
  if (!list->is_array()) fail(where, "labels must be a list of texts, got {}", list->dump());
  for (const nlohmann::json& label : *list) {
    if (!label.is_string()) fail(where, "labels must be texts, got {}", label.dump());
    labels.push_back(label.get<std::string>());
  }
  return labels;
}

std::map<std::string, std::string> columns_of(const nlohmann::json* object, const std::string& where) {
  std::map<std::string, std::string> columns;
  if (object == nullptr) return columns;
  if (!object->is_object()) fail(where, "columns must be an object, got {}", object->dump());
  for (const auto& [name, field] : object->items()) {
    if (!field.is_string()) fail(where, "columns.{} must be a text, got {}", name, field.dump());
    columns[name] = field.get<std::string>();
  }
  return columns;
}

}  // namespace

nlohmann::json to_json(const TaskSettings& settings) {
  return {{"kind", settings.kind},
          {"columns", settings.columns},
          {"labels", settings.labels},
          {"max_length", settings.max_length},
          {"truncation", name_of(kTruncations, settings.truncation)},
          {"keep", name_of(kKeeps, settings.keep)},
          {"windows", settings.windows},
          {"stride", settings.stride},
          {"pooling", name_of(kPoolings, settings.pooling)},
          {"metric", settings.metric},
          {"no_answer", settings.no_answer}};
}

TaskSettings load_task_settings(const std::string& model_dir) {
  const std::string path = model_dir + "/" + kTaskFile;
  if (!io::has_file(path)) {
    fail("task", "a fine-tuned model must have {}, got none in {} (roformer finetune writes it)", kTaskFile, model_dir);
  }
  const nlohmann::json json = io::read_json(path);
  io::StrictObject object(json, path, "");
  TaskSettings settings;
  settings.kind = object.text("kind", "");
  settings.columns = columns_of(object.find("columns"), path);
  settings.labels = labels_of(object.find("labels"), path);
  settings.max_length = object.integer("max_length", settings.max_length, 1, kMaxRowTokens);
  settings.truncation = object.choice("truncation", settings.truncation, kTruncations);
  settings.keep = object.choice("keep", settings.keep, kKeeps);
  settings.windows = object.integer("windows", settings.windows, 1, kMaxWindows);
  settings.stride = object.integer("stride", settings.stride, 0, kMaxRowTokens);
  settings.pooling = object.choice("pooling", settings.pooling, kPoolings);
  settings.metric = object.text("metric", "");
  settings.no_answer = object.boolean("no_answer", settings.no_answer);
  object.finish();
  check_settings(settings);
  settings.columns.try_emplace("id", "id");
  for (const TaskColumn& column : task_kind(settings.kind).columns) {
    if (column.use != TaskColumn::Use::kOptionalInput && !settings.columns.contains(column.name)) {
      fail(path, "columns must say which field is {}, got none", column.name);
    }
  }
  return settings;
}

void check_settings(const TaskSettings& settings) {
  task_kind(settings.kind);
  if (settings.max_length < 1 || settings.max_length > kMaxRowTokens) {
    fail("task", "max-length must be from 1 to {}, got {}", kMaxRowTokens, settings.max_length);
  }
  if (settings.windows < 1 || settings.windows > kMaxWindows) {
    fail("task", "windows must be from 1 to {}, got {}", kMaxWindows, settings.windows);
  }
  if (settings.stride < 0) fail("task", "stride must be at least 0, got {}", settings.stride);
  if (settings.windows > 1 && settings.keep == Keep::kHeadTail) {
    fail("task", "windows go with keep head or tail, where they begin, got head-tail");
  }
}

}  // namespace rf::tasks
