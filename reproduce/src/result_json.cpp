// result.json (result_json.h).
#include "result_json.h"

namespace rf::reproduce {

namespace {

// Whether the outcome was as expected. Results that were written before outcomes were apart from verdicts have it as
// "confirmed".
bool held(const nlohmann::json& result, const std::string& claim) {
  const nlohmann::json holds = result.value("holds", nlohmann::json::object());
  if (holds.contains(claim)) return holds.at(claim).get<bool>();
  return result.at("verdicts").value(claim, "") == "confirmed";
}

const char* verdict_of(Kind kind, bool holds) {
  switch (kind) {
    case Kind::kMathematics:
      return holds ? verdicts::kProved : verdicts::kRefuted;
    case Kind::kMeasurement:  // a bound of the experiment's own that is missed is not the opposite of the claim
      return holds ? verdicts::kSupported : verdicts::kInconclusive;
    default:
      return verdicts::kInconclusive;
  }
}

}  // namespace

nlohmann::json rules_json(const Experiment& experiment) {
  nlohmann::json all = nlohmann::json::object();
  for (const Rule& rule : rules()) {
    if (rule.experiment == experiment.name) all[rule.claim] = rule;
  }
  return all;
}

nlohmann::json result_json(const Experiment& experiment, const Result& result, const RunLog& log, Scale scale) {
  nlohmann::json json = {{"name", experiment.name},
                         {"spec", experiment.spec},
                         {"title", experiment.title},
                         {"claims", experiment.claims},
                         {"expected", experiment.expected},
                         {"scale", experiment.scale_name(scale)},
                         {"kind", name_of(experiment.kind)},
                         {"revision", experiment.revision},
                         {"table", {{"columns", result.columns}, {"rows", result.rows}}},
                         {"series", nlohmann::json::array()},
                         {"maps", nlohmann::json::array()},
                         {"measures", result.measures},
                         {"rates", log.rates},
                         {"training", log.training},
                         {"holds", nlohmann::json::object()},
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
  check_measures(result.measures);
  for (const Finding& finding : result.findings) {
    json["holds"][finding.claim] = finding.holds;
    json["figures"][finding.claim] = finding.figures;
  }
  judge_result(experiment, json);
  return json;
}

void judge_result(const Experiment& experiment, nlohmann::json& result) {
  const nlohmann::json found = result.value("figures", nlohmann::json::object());
  // What a result says that was written before there were measures; its verdicts rested on it.
  if (experiment.kind == Kind::kTrained && !result.contains("measures") && !result.contains("recorded")) {
    result["recorded"] = found;
  }
  nlohmann::json verdicts_of = nlohmann::json::object(), figures = nlohmann::json::object();
  nlohmann::json checks = nlohmann::json::object(), holds = nlohmann::json::object();
  // What the experiment decided itself.
  for (const auto& [claim, text] : found.items()) {
    if (rule_of(experiment.name, claim) && experiment.kind == Kind::kTrained) continue;
    holds[claim] = held(result, claim);
    const std::string reason = experiment.kind == Kind::kTrained ? "no rule compares the values by seed; " : "";
    const std::string said = text.get<std::string>();
    figures[claim] = said.starts_with(reason) ? said : reason + said;
    verdicts_of[claim] = verdict_of(experiment.kind, holds.at(claim).get<bool>());
  }
  const Evidence evidence = evidence_of(result);
  for (const Rule& rule : rules()) {
    if (rule.experiment != experiment.name) continue;
    const Verdict judged = judge(rule, evidence);
    verdicts_of[rule.claim] = judged.verdict;
    figures[rule.claim] = judged.figures;
    checks[rule.claim] = judged.checks;
  }
  if (result.at("scale") == name_of(Scale::kTiny)) {
    for (auto& [claim, verdict] : verdicts_of.items()) verdict = verdicts::kSmokeRun;
  }
  result["verdicts"] = verdicts_of;
  result["figures"] = figures;
  result["holds"] = holds;
  result["checks"] = checks;
  if (!result.contains("rules_when_run")) result["rules_when_run"] = result.value("rules", rules_json(experiment));
  result["rules"] = rules_json(experiment);
}

}  // namespace rf::reproduce
