// roformer doctor: which rotation a model's files describe, and what is wrong with them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.h"
#include "rf/model/model_types.h"
#include "rf/model/rotary_report.h"

namespace rf::cli {

namespace {

struct DoctorOptions {
  std::string path;
  bool families = false, strict = false, json = false;
};

std::string or_unknown(int64_t number) { return number == 0 ? "not given" : fmt::format("{}", number); }

// A line of the table: a name and its value.
std::string fact_line(std::string_view name, const std::string& value) {
  return fmt::format("{:<20}{}\n", name, value);
}

std::string model_lines(const RotaryReport& report) {
  std::string text = fact_line("file", report.path);
  const std::string version = report.version == 0 ? "" : fmt::format(", version {}", report.version);
  text += fact_line("format", report.format + version);
  const std::string part = report.part.empty() ? "" : fmt::format(", in {}", report.part);
  text += fact_line("model type", (report.model_type.empty() ? "not given" : report.model_type) + part);
  text += fact_line("heads", fmt::format("{} of {} elements; keys and values: {}", or_unknown(report.heads),
                                         report.head_size, or_unknown(report.kv_heads)));
  text += fact_line("layers", or_unknown(report.layers));
  text += fact_line("longest sequence", or_unknown(report.length));
  if (!report.dtype.empty()) text += fact_line("dtype", report.dtype);
  text += fact_line("tensors", report.tensors < 0 ? "no weights" : fmt::format("{}", report.tensors));
  if (!report.unrotated_layers.empty()) {
    text += fact_line("not rotated", fmt::format("layers {}", fmt::join(report.unrotated_layers, ", ")));
  }
  return text;
}

std::string error_text(const AngleError& error) {
  return fmt::format("cos and sin off by up to {:.1e} at position {}, pair {}", error.error, error.position,
                     error.pair);
}

std::string rotation_lines(const Rotation& rotation, const nlohmann::json& as_json) {
  std::string text = fmt::format("\nrotation of {} layers\n", rotation.layers);
  std::string pairing = "not known";
  if (rotation.layout == RotaryLayout::kPairs) pairing = "pairs: elements 2i and 2i + 1";
  if (rotation.layout == RotaryLayout::kHalves) {
    pairing = rotation.spec ? fmt::format("halves: elements i and i + {}", rotation.spec->rotary_dim / 2)
                            : "halves: elements i and i + half of the rotated part";
  }
  text += fact_line("  pairing", pairing);
  text += fact_line("  base", fmt::format("{}", rotation.base));
  std::string scaling = rotation.scaling == "default" ? "none" : rotation.scaling;
  if (const auto numbers = as_json["scaling_parameters"]; numbers.is_object()) {
    for (const auto& [key, value] : numbers.items()) scaling += fmt::format(", {} {}", key, value.dump());
  }
  text += fact_line("  scaling", scaling);
  if (!rotation.spec) return text + fact_line("  frequencies", "not computed");
  const RopeSpec& spec = *rotation.spec;
  text += fact_line("  rotary size", fmt::format("{} of {}", 2 * spec.rotating_pairs, spec.head_dim));
  text += fact_line("  attention factor", fmt::format("{}", spec.attention_factor));
  const auto lowest = [](const std::vector<double>& all) { return fmt::format("{:.6g}", all.back()); };
  std::string range = fmt::format("{:.6g} to {}", rotation.frequencies.front(), lowest(rotation.frequencies));
  if (!rotation.longest_frequencies.empty()) {
    range += fmt::format("; at the longest sequence {:.6g} to {}", rotation.longest_frequencies.front(),
                         lowest(rotation.longest_frequencies));
  }
  text += fact_line("  frequencies", range);
  if (rotation.float32_angles) text += fact_line("  float32 angles", error_text(*rotation.float32_angles));
  return text;
}

std::string finding_lines(const RotaryReport& report) {
  if (report.findings.empty()) return "\nnothing found\n";
  std::string text = "\n";
  for (const Severity severity : {Severity::kProblem, Severity::kNote}) {
    for (const Finding& finding : report.findings) {
      if (finding.severity == severity) {
        text += fmt::format("{:<9}{:<21}{}\n", name(severity), finding.rule, finding.text);
      }
    }
  }
  return text;
}

int run_doctor(const DoctorOptions& options) {
  if (options.families) {
    emit_list(rotary_model_types(), {"model_type", "pairing", "base", "rotates"}, options.json);
    return kOk;
  }
  if (options.path.empty()) fail_usage("usage", "a model must be given, got none (roformer doctor DIR)");
  const RotaryReport report = rotary_report(located_model(options.path));
  const nlohmann::json json = to_json(report);
  if (shows_text(options.json)) {
    std::string text = model_lines(report);
    for (size_t i = 0; i < report.rotations.size(); ++i) {
      text += rotation_lines(report.rotations[i], json["rotations"][i]);
    }
    text += finding_lines(report);
    text.pop_back();  // emit_text() ends the last line
    emit_text(text);
  } else {
    emit(json);
  }
  const bool has_problem = std::ranges::any_of(
      report.findings, [](const Finding& finding) { return finding.severity == Severity::kProblem; });
  return options.strict && has_problem ? kBadInput : kOk;
}

std::function<int()> configure_doctor(CLI::App& app, const Common&) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::Option* const path =
      app.add_option("DIR", options->path, "A directory with config.json, with or without weights, or a .gguf file");
  app.add_flag("--families", options->families, "The model types that are known, instead of a report")->excludes(path);
  app.add_flag("--strict", options->strict, "Exit code 1 if there is a problem, not only if the files cannot be read");
  add_json(app, options->json);
  return [options] { return run_doctor(*options); };
}

}  // namespace

Command doctor_command() {
  return {"doctor", "Which rotation a model's files describe, and what contradicts it in them",
          "roformer doctor path/to/model", Command::Seed::kNotUsed, configure_doctor};
}

}  // namespace rf::cli
