// Experiments from their names to their results (rf/reproduce/reproduce.h).
#include "rf/reproduce/reproduce.h"

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "data_sets.h"
#include "experiment.h"
#include "register.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/io/nearest_name.h"
#include "rf/io/printable.h"
#include "rf/train/run_directory.h"

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
    fail("reproduce", "{} must find its data in the directory of --data, got {} without {}", name,
         options.data_dir.empty() ? "no --data" : options.data_dir, missing);
  }
  for (const Experiment& experiment : table()) {
    const auto& names = options.names;
    if (std::find(names.begin(), names.end(), experiment.name) != names.end()) chosen.push_back(&experiment);
  }
  return chosen;
}

std::string verdict(const Finding& finding, const Experiment& experiment, Scale scale) {
  if (experiment.has_scale() && scale == Scale::kTiny) return "smoke run";
  if (finding.holds) return "confirmed";
  return experiment.has_scale() ? "not confirmed at this size" : "not confirmed";
}

nlohmann::json to_json(const Experiment& experiment, const Result& result, const Options& options) {
  nlohmann::json json = {{"name", experiment.name},
                         {"spec", experiment.spec},
                         {"title", experiment.title},
                         {"claims", experiment.claims},
                         {"expected", experiment.expected},
                         {"scale", experiment.scale_name(options.scale)},
                         {"command", options.command},
                         {"machine", nlohmann::json::parse(options.machine_json)},
                         {"table", {{"columns", result.columns}, {"rows", result.rows}}},
                         {"series", nlohmann::json::array()},
                         {"maps", nlohmann::json::array()},
                         {"verdicts", nlohmann::json::object()},
                         {"figures", nlohmann::json::object()}};
  for (const Series& series : result.series) {
    json["series"].push_back({{"name", series.name}, {"x", series.x}, {"y", series.y}});
  }
  for (const HeatMap& map : result.maps) {
    json["maps"].push_back({{"name", map.name},
                            {"x_name", map.x_name},
                            {"value_name", map.value_name},
                            {"x", map.x},
                            {"y", map.y},
                            {"values", map.values}});
  }
  for (const Finding& finding : result.findings) {
    json["verdicts"][finding.claim] = verdict(finding, experiment, options.scale);
    json["figures"][finding.claim] = finding.figures;
  }
  return json;
}

enum class Source { kRun, kKept };

nlohmann::json result_line(const nlohmann::json& result, Source source) {
  return {{"name", result.at("name")},
          {"scale", result.at("scale")},
          {"verdicts", result.at("verdicts")},
          {"seconds", result.at("seconds")},
          {"kept", source == Source::kKept}};
}

// The existing result, if its settings are the current ones; otherwise null.
nlohmann::json done_before(const std::string& path, const nlohmann::json& settings) {
  if (!fs::exists(path)) return nullptr;
  nlohmann::json result = io::read_json(path);
  if (!result.is_object()) return nullptr;
  for (const char* key : {"name", "scale", "verdicts", "seconds", "settings"}) {
    if (!result.contains(key)) return nullptr;
  }
  return result.at("settings") == settings ? result : nlohmann::json();
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
                   {"data", files_of(experiment.settings_at(scale))}});
  }
  return all;
}

Report reproduce(const Options& options, io::Progress& progress,
                 const std::function<void(const nlohmann::json&)>& result_to) {
  const std::vector<const Experiment*> experiments = chosen(options);
  const auto output = train::RunDirectory::unlocked("reproduce", options.output_dir);
  io::write_file(output.file("register.json"), register_json().dump(2) + "\n");
  Report report;
  for (const Experiment* experiment : experiments) {
    const nlohmann::json settings = experiment->settings_at(options.scale);
    const char* const scale = experiment->scale_name(options.scale);
    const std::string shared_dir = fmt::format("{}/{}", options.output_dir, scale);
    const std::string directory = fmt::format("{}/{}", shared_dir, experiment->name);
    const nlohmann::json before = done_before(directory + "/result.json", settings);
    if (!before.is_null()) {
      result_to(result_line(before, Source::kKept));
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
    const auto start = std::chrono::steady_clock::now();
    const Result result = experiment->method.run(options.scale, {shared_dir, options.data_dir, options.note, progress});
    report.signal = result.signal;
    if (report.signal != 0) return report;
    nlohmann::json json = to_json(*experiment, result, options);
    json["settings"] = settings;
    json["seeds"] = settings.value("seeds", nlohmann::json::array());
    json["seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    io::write_file(train::RunDirectory::unlocked("reproduce", directory).file("result.json"), json.dump(1) + "\n");
    result_to(result_line(json, Source::kRun));
    ++report.done;
  }
  return report;
}

}  // namespace rf::reproduce
