// Experiments from their names to their results (rf/reproduce/reproduce.h).
#include "rf/reproduce/reproduce.h"

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "cost_estimate.h"
#include "data_sets.h"
#include "experiment.h"
#include "register.h"
#include "result_json.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/nearest_name.h"
#include "rf/io/printable.h"
#include "rf/train/run_directory.h"
#include "rules.h"
#include "shared_training.h"

namespace rf::reproduce {

namespace {

namespace fs = std::filesystem;

constexpr std::pair<const char*, Scale> kScales[] = {
    {"tiny", Scale::kTiny}, {"small", Scale::kSmall}, {"paper", Scale::kPaper}};

std::vector<std::string> files_of(const nlohmann::json& settings) {
  return settings.value("files", std::vector<std::string>());
}

const Experiment& experiment_of_name(const std::string& name) {
  std::vector<std::string_view> known = {"all"};
  for (const Experiment& experiment : table()) {
    if (experiment.name == name) return experiment;
    known.push_back(experiment.name);
  }
  const std::string_view nearest = io::nearest_name(name, known);
  fail("reproduce", "the experiment must be a known one or all, got {}{} (--list names them)", io::printable(name),
       nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest));
}

// The missing data, and where to get them; "" if none are missing.
std::string missing_data(const Experiment& experiment, const Options& options) {
  const std::vector<std::string> missing =
      missing_files(options.data_dir, files_of(experiment.settings_at(options.scale)));
  return missing.empty() ? "" : where_to_get(missing);
}

// This process, for the records of training.
nlohmann::json process_of(const Options& options) {
  nlohmann::json process = nlohmann::json::parse(options.machine_json);
  process["command"] = options.command;
  return process;
}

std::string commit_of(const Options& options) {
  return nlohmann::json::parse(options.machine_json).value("commit", "");
}

// Whether the program was built from files that differ from its commit.
bool is_dirty(const std::string& commit) {
  return commit.ends_with("-dirty");
}

// Whether anyone with the history can build the program again.
bool is_known(const std::string& commit) {
  return !commit.empty() && commit != "unknown" && !is_dirty(commit);
}

void note_changed_tree(const Options& options) {
  const std::string commit = commit_of(options);
  if (!options.note || !is_dirty(commit)) return;
  options.note(
      fmt::format("this program was built from files that differ from commit {}; the report does not count "
                  "results of such a build",
                  commit.substr(0, commit.size() - 6)));
}

// Whether a learning rate is chosen somewhere: by a RateSearch, or a Tuning with several rates.
bool compares_rates(const nlohmann::json& settings) {
  for (const auto& [key, value] : settings.items()) {
    if ((key == "rates" || key == "learning_rates") && value.size() > 1) return true;
    if (value.is_structured() && compares_rates(value)) return true;
  }
  return false;
}

// Before an experiment of published hyperparameters: what differs from the publication, and how long it takes at least.
void print_cost(const Experiment& experiment, const Options& options) {
  if (options.scale != Scale::kPaper || !options.note || experiment.kind != Kind::kTrained) return;
  const nlohmann::json settings = experiment.settings_at(options.scale);
  for (const std::string& exception : experiment.exceptions) options.note("not as published: " + exception);
  const size_t seeds = settings.value("seeds", nlohmann::json::array()).size();
  if (seeds > 1) options.note(fmt::format("each arm is trained with {} seeds", seeds));
  const bool is_tuned = compares_rates(settings);
  for (const Rule& rule : rules()) {
    if (is_tuned || rule.experiment != experiment.name || rule.tuned.empty()) continue;
    options.note(
        fmt::format("{} will be inconclusive: its rule asks for a learning rate that is the best of several, and the "
                    "published one is taken",
                    rule.claim));
  }
  const std::string cost = cost_text(settings);
  options.note(cost.empty() ? fmt::format("as at scale small: about {:g} hours on 2 cores", experiment.hours) : cost);
}

// The named experiments in the order of the table.
std::vector<const Experiment*> chosen(const Options& options) {
  if (options.names.empty()) fail("reproduce", "an experiment must be named, or all, got none (--list names them)");
  std::vector<const Experiment*> chosen;
  if (std::find(options.names.begin(), options.names.end(), "all") != options.names.end()) {
    for (const std::string& name : options.names) {
      if (name != "all") experiment_of_name(name);
    }
    for (const Experiment& experiment : table()) chosen.push_back(&experiment);
    return chosen;
  }
  for (const std::string& name : options.names) {
    const Experiment& experiment = experiment_of_name(name);
    const std::string missing = missing_data(experiment, options);
    if (missing.empty()) continue;
    print_cost(experiment, options);
    fail("reproduce", "{} must find its data in the directory of --data, got {} without {}", name,
         options.data_dir.empty() ? "no --data" : options.data_dir, missing);
  }
  for (const Experiment& experiment : table()) {
    const auto& names = options.names;
    if (std::find(names.begin(), names.end(), experiment.name) != names.end()) chosen.push_back(&experiment);
  }
  return chosen;
}

enum class Source { kRun, kKept };

nlohmann::json result_line(const nlohmann::json& result, Source source) {
  return {{"name", result.at("name")},
          {"scale", result.at("scale")},
          {"verdicts", result.at("verdicts")},
          {"seconds", result.at("seconds")},
          {"kept", source == Source::kKept}};
}

// The commit of the program whose verdicts a result has, where that is not the one which made it.
constexpr const char* kJudgedBy = "judged_by";

// The experiment's result, if it is there and has what is read of it; otherwise null.
nlohmann::json existing_result(const std::string& path, const Experiment& experiment) {
  if (!fs::exists(path)) return nullptr;
  nlohmann::json result = io::read_json(path);
  if (!result.is_object()) return nullptr;
  for (const char* key : {"name", "scale", "verdicts", "figures", "seconds", "settings"}) {
    if (!result.contains(key)) return nullptr;
  }
  if (result["name"] != experiment.name) return nullptr;
  if (result.contains("revision") && !result["revision"].is_number_integer()) return nullptr;
  if (result.contains(kJudgedBy) && !result[kJudgedBy].is_string()) return nullptr;
  return result;
}

// Whether it is a result of these settings and of this revision of the experiment.
bool is_current(const nlohmann::json& result, const Experiment& experiment, const nlohmann::json& settings) {
  return !result.is_null() && result.at("settings") == settings &&
         result.value("revision", int64_t{1}) == experiment.revision;
}

void write_result(const std::string& path, const nlohmann::json& result) {
  io::write_file(path, result.dump(1) + "\n");
}

// Judges a stored result by the rules as they are, and writes it if a verdict or a rule has changed, or if a program of
// a known commit says the same as one of none, or as one that did not say which it was.
void judge_stored(const Experiment& experiment, const std::string& path, nlohmann::json& result,
                  const std::string& commit) {
  const nlohmann::json before = result;
  try {
    judge_result(experiment, result);
  } catch (const std::exception& error) {  // of JSON, or of check_measures
    fail("reproduce", "{} must be a result of this program, got: {}", path, error.what());
  }
  const bool is_unsigned = !before.contains(kJudgedBy) && result.at("rules") != result.at("rules_when_run");
  const bool was_unknown = before.contains(kJudgedBy) && !is_known(before.at(kJudgedBy).get<std::string>());
  const bool is_confirmed = (is_unsigned || was_unknown) && is_known(commit);
  if (result == before && !is_confirmed) return;
  result[kJudgedBy] = commit;
  write_result(path, result);
}

std::string result_path(const std::string& output_dir, const Experiment& experiment, Scale scale) {
  return fmt::format("{}/{}/{}/result.json", output_dir, experiment.scale_name(scale), experiment.name);
}

}  // namespace

Scale scale_of_name(const std::string& name) {
  std::vector<std::string_view> known;
  for (const auto& [each, scale] : kScales) {
    if (name == each) return scale;
    known.push_back(each);
  }
  const std::string_view nearest = io::nearest_name(name, known);
  fail("reproduce", "the scale must be tiny, small or paper, got {}{}", io::printable(name),
       nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest));
}

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kMathematics:
      return "mathematics";
    case Kind::kMeasurement:
      return "measurement";
    default:
      return "training";
  }
}

const char* name_of(Scale scale) {
  return kScales[static_cast<size_t>(scale)].first;
}

std::vector<nlohmann::json> experiments(Scale scale) {
  std::vector<nlohmann::json> all;
  for (const Experiment& experiment : table()) {
    all.push_back({{"name", experiment.name},
                   {"spec", experiment.spec},
                   {"title", experiment.title},
                   {"claims", experiment.claims},
                   {"expected", experiment.expected},
                   {"scale", experiment.scale_name(scale)},
                   {"budget", experiment.budget},
                   {"kind", name_of(experiment.kind)},
                   {"hours", experiment.hours},
                   {"exceptions", experiment.exceptions},
                   {"operations", pretraining_operations(experiment.settings_at(scale))},
                   {"data", files_of(experiment.settings_at(scale))}});
  }
  return all;
}

Report reproduce(const Options& options, io::Progress& progress,
                 const std::function<void(const nlohmann::json&)>& result_to) {
  const std::vector<const Experiment*> experiments = chosen(options);
  const auto output = train::RunDirectory::unlocked("reproduce", options.output_dir);
  io::write_file(output.file("register.json"), register_json().dump(2) + "\n");
  note_changed_tree(options);
  Report report;
  for (const Experiment* experiment : experiments) {
    const nlohmann::json settings = experiment->settings_at(options.scale);
    const char* const scale = experiment->scale_name(options.scale);
    const std::string shared_dir = fmt::format("{}/{}", options.output_dir, scale);
    const std::string directory = fmt::format("{}/{}", shared_dir, experiment->name);
    const std::string path = result_path(options.output_dir, *experiment, options.scale);
    const auto keep_if_current = [&] {
      nlohmann::json before = existing_result(path, *experiment);
      if (!is_current(before, *experiment, settings)) return false;
      judge_stored(*experiment, path, before, commit_of(options));
      result_to(result_line(before, Source::kKept));
      return true;
    };
    if (keep_if_current()) {
      ++report.done;
      continue;
    }
    const std::string missing = missing_data(*experiment, options);
    if (!missing.empty()) {
      result_to({{"name", experiment->name}, {"scale", scale}, {"missing_data", missing}});
      ++report.missing_data;
      continue;
    }
    if (options.note) options.note(fmt::format("{} ({}): {}", experiment->name, experiment->spec, experiment->title));
    print_cost(*experiment, options);
    RunLog log;
    const Context context{shared_dir, options.data_dir, options.note, progress, process_of(options), log};
    const auto run = [&](size_t) {
      if (keep_if_current()) return 0;  // another process has run it
      const auto start = std::chrono::steady_clock::now();
      const Result result = experiment->method.run(options.scale, context);
      if (result.signal != 0) return result.signal;
      if (keep_if_current()) return 0;
      nlohmann::json json = result_json(*experiment, result, log, options.scale);
      json["command"] = options.command;
      json["machine"] = nlohmann::json::parse(options.machine_json);
      json["settings"] = settings;
      json["seeds"] = settings.value("seeds", nlohmann::json::array());
      json["seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      fs::create_directories(directory);
      write_result(path, json);
      result_to(result_line(json, Source::kRun));
      return 0;
    };
    report.signal = experiment->shares_arms ? run(0) : share(context, "experiments", {experiment->name}, run);
    if (report.signal != 0) return report;
    ++report.done;
  }
  return report;
}

void judge_again(const Options& options, const std::function<void(const nlohmann::json&)>& result_to) {
  const std::string& output_dir = options.output_dir;
  if (!fs::exists(output_dir + "/register.json")) {
    fail("reproduce", "--judge must be given an output directory with results, got {} without register.json",
         output_dir);
  }
  io::write_file(output_dir + "/register.json", register_json().dump(2) + "\n");
  note_changed_tree(options);
  for (const Experiment& experiment : table()) {
    std::set<std::string> paths;
    for (const auto& [name, scale] : kScales) paths.insert(result_path(output_dir, experiment, scale));
    for (const std::string& path : paths) {
      if (!fs::exists(path)) continue;
      nlohmann::json result = existing_result(path, experiment);
      if (result.is_null()) fail("reproduce", "{} must be a result of this program, got another file", path);
      judge_stored(experiment, path, result, commit_of(options));
      result_to(result_line(result, Source::kKept));
    }
  }
}

}  // namespace rf::reproduce
