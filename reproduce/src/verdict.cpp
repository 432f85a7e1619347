// Verdicts (verdict.h): paired differences over seeds, Student's t, Holm's correction.
#include "verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>
#include <tuple>

#include "statistics.h"

namespace rf::reproduce {

namespace {

constexpr size_t kFewestRates = 3;

struct Check {
  const Contrast* contrast = nullptr;
  std::vector<double> values;
  Estimate found;
  double p_holds = 1, p_fails = 1;  // against the region's complement, and against the region
  std::string missing = {};         // the first seed whose value an arm lacks that has others, in words
};

std::string missing_value(const Contrast& contrast, const Evidence& evidence) {
  for (const std::string& arm : {contrast.arm, contrast.against}) {
    const auto values = evidence.values(contrast.measure, arm);
    if (values.empty()) continue;
    for (const uint64_t seed : evidence.seeds) {
      if (!values.contains(seed)) return fmt::format("{} has no {} with seed {}", arm, contrast.measure, seed);
    }
  }
  return "";
}

Check check(const Contrast& contrast, const Evidence& evidence) {
  Check made{.contrast = &contrast,
             .values = evidence.differences(contrast.measure, contrast.arm, contrast.against),
             .found = {},
             .missing = missing_value(contrast, evidence)};
  if (made.values.empty()) return made;
  made.found = estimate(made.values, kConfidence);
  const bool has_low = std::isfinite(contrast.above), has_high = std::isfinite(contrast.below);
  // Both ends must be shown (two one-sided tests, for equivalence); either end may fail.
  made.p_holds = 0;
  if (has_low) made.p_holds = std::max(made.p_holds, made.found.p_above(contrast.above));
  if (has_high) made.p_holds = std::max(made.p_holds, made.found.p_below(contrast.below));
  if (has_low) made.p_fails = std::min(made.p_fails, made.found.p_below(contrast.opposite.value_or(contrast.above)));
  if (has_high) made.p_fails = std::min(made.p_fails, made.found.p_above(contrast.opposite.value_or(contrast.below)));
  if (has_low && has_high) made.p_fails = std::min(1.0, 2 * made.p_fails);
  return made;
}

std::vector<Check> checks_of(const std::vector<Contrast>& contrasts, const Evidence& evidence) {
  std::vector<Check> made;
  for (const Contrast& contrast : contrasts) made.push_back(check(contrast, evidence));
  return made;
}

const char* outcome(double p_holds, double p_fails) {
  return p_holds < kSignificance ? "holds" : p_fails < kSignificance ? "fails" : "not shown";
}

std::string figures_of(const Check& check) {
  if (check.values.empty()) return fmt::format("{}: no such values by seed", text(*check.contrast));
  const std::string unit = unit_of(*check.contrast);
  return fmt::format("{}; {}", text(*check.contrast), text(check.found, unit.empty() ? 1 : 100, unit));
}

nlohmann::json json_of(const Check& check, const char* role, double p_holds, double p_fails) {
  nlohmann::json json = {{"text", text(*check.contrast)}, {"role", role}, {"seeds", check.values.size()}};
  if (const std::string unit = unit_of(*check.contrast); !unit.empty()) json["unit"] = unit;
  if (check.values.empty()) {
    json["outcome"] = "no values";
    return json;
  }
  json["mean"] = check.found.mean;
  if (check.values.size() > 1) {
    json["low"] = check.found.low;
    json["high"] = check.found.high;
  }
  json["p"] = check.p_holds;
  json["p_holm"] = p_holds;
  json["outcome"] = check.missing.empty() ? outcome(p_holds, p_fails) : "a value is missing";
  return json;
}

// Why the learning rate of an arm is not tuned; "" if it is.
std::string not_tuned(const std::string& arm, const Evidence& evidence) {
  const auto tried = std::find_if(evidence.rates.begin(), evidence.rates.end(),
                                  [&](const TriedRates& rates) { return rates.arm == arm; });
  if (tried == evidence.rates.end()) return fmt::format("the learning rate of {} was not tuned", arm);
  if (tried->rates.size() < kFewestRates) {
    return fmt::format("{} rates were tried for {}, fewer than {}", tried->rates.size(), arm, kFewestRates);
  }
  if (tried->is_chosen_inside()) return "";
  return fmt::format("the best rate of {}, {:g}, is at the edge of those tried", arm, tried->chosen());
}

// Adds the preconditions to the verdict's checks; returns why the first that fails does, "" if all hold.
std::string failed_precondition(const Rule& rule, const Evidence& evidence, Verdict& judged) {
  std::string first;
  const auto fail = [&](const std::string& reason) {
    if (first.empty()) first = reason;
  };
  for (const std::string& arm : rule.tuned) {
    const std::string reason = not_tuned(arm, evidence);
    judged.checks.push_back({{"text", fmt::format("the learning rate of {} is tuned", arm)},
                             {"role", "precondition"},
                             {"tuned", arm},
                             {"outcome", reason.empty() ? "holds" : "fails"}});
    if (!reason.empty()) fail(reason);
  }
  for (const Check& made : checks_of(rule.preconditions, evidence)) {
    judged.checks.push_back(json_of(made, "precondition", made.p_holds, made.p_fails));
    if (made.p_holds >= kSignificance) fail(fmt::format("a precondition is not shown: {}", figures_of(made)));
    if (!made.missing.empty()) fail(made.missing);
  }
  return first;
}

std::vector<double> losses_of(const nlohmann::json& losses) {
  std::vector<double> all;
  for (const nlohmann::json& loss : losses) all.push_back(number_of(loss));
  return all;
}

}  // namespace

void check_measures(const std::vector<Measure>& measures) {
  std::set<std::tuple<std::string, std::string, uint64_t>> seen;
  for (const Measure& measure : measures) {
    if (seen.emplace(measure.name, measure.arm, measure.seed).second) continue;
    throw std::invalid_argument(fmt::format("{} of {} with seed {} twice", measure.name, measure.arm, measure.seed));
  }
}

double number_of(const nlohmann::json& value) {
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::infinity();
}

double TriedRates::chosen() const {
  const std::vector<double>& tried = whole_rates.empty() ? rates : whole_rates;
  const std::vector<double>& found = whole_rates.empty() ? losses : whole_losses;
  return tried[static_cast<size_t>(std::min_element(found.begin(), found.end()) - found.begin())];
}

bool TriedRates::is_chosen_inside() const {
  const double lowest = whole_rates.empty() ? rates.front() : whole_rates.front();
  return chosen() > lowest && chosen() < rates.back();
}

std::vector<double> Evidence::differences(const std::string& measure, const std::string& arm,
                                          const std::string& against) const {
  const auto others = values(measure, against);
  std::vector<double> found;
  for (const auto& [seed, value] : values(measure, arm)) {
    if (against.empty()) {
      found.push_back(value);
    } else if (others.contains(seed)) {
      found.push_back(value - others.at(seed));
    }
  }
  return found;
}

std::map<uint64_t, double> Evidence::values(const std::string& measure, const std::string& arm) const {
  std::map<uint64_t, double> found;
  for (const Measure& each : measures) {
    if (each.name == measure && each.arm == arm && std::isfinite(each.value)) found[each.seed] = each.value;
  }
  return found;
}

Evidence evidence_of(const nlohmann::json& result) {
  Evidence evidence;
  evidence.revision = result.value("revision", int64_t{1});
  evidence.seeds = result.value("seeds", std::vector<uint64_t>{});
  for (const nlohmann::json& each : result.value("measures", nlohmann::json::array())) {
    if (each.at("value").is_null()) continue;
    evidence.measures.push_back(
        {each.at("name"), each.at("arm"), each.at("seed").get<uint64_t>(), each.at("value").get<double>()});
  }
  check_measures(evidence.measures);
  for (const nlohmann::json& each : result.value("rates", nlohmann::json::array())) {
    TriedRates& tried = evidence.rates.emplace_back(
        TriedRates{.arm = each.at("arm"), .rates = each.at("rates"), .losses = losses_of(each.at("losses"))});
    if (!each.contains("whole")) continue;
    tried.whole_rates = each["whole"].at("rates").get<std::vector<double>>();
    tried.whole_losses = losses_of(each["whole"].at("losses"));
  }
  return evidence;
}

void to_json(nlohmann::json& json, const Measure& measure) {
  json = {{"name", measure.name}, {"arm", measure.arm}, {"seed", measure.seed}, {"value", measure.value}};
}

void to_json(nlohmann::json& json, const TriedRates& rates) {
  json = {{"arm", rates.arm}, {"rates", rates.rates}, {"losses", rates.losses}};
  if (!rates.whole_rates.empty()) json["whole"] = {{"rates", rates.whole_rates}, {"losses", rates.whole_losses}};
  if (!rates.training.empty()) json["training"] = rates.training;
}

Verdict judge(const Rule& rule, const Evidence& evidence) {
  Verdict judged{.verdict = verdicts::kInconclusive, .figures = ""};
  if (!rule.withdrawn.empty() && evidence.revision < rule.sound_since) {
    judged.figures = "withdrawn: " + rule.withdrawn;
    return judged;
  }
  std::string failed = failed_precondition(rule, evidence, judged);
  const std::vector<Check> parts = checks_of(rule.parts, evidence);
  std::vector<double> p_holds, p_fails;
  for (const Check& part : parts) {
    p_holds.push_back(part.p_holds);
    p_fails.push_back(part.p_fails);
    if (failed.empty()) failed = part.missing;
  }
  p_holds = holm(p_holds);
  p_fails = holm(p_fails);
  bool all_hold = true, one_fails = false, has_values = true, any_values = false;
  std::string figures;
  for (size_t i = 0; i < parts.size(); ++i) {
    judged.checks.push_back(json_of(parts[i], "part", p_holds[i], p_fails[i]));
    all_hold = all_hold && p_holds[i] < kSignificance;
    one_fails = one_fails || p_fails[i] < kSignificance;
    has_values = has_values && !parts[i].values.empty();
    any_values = any_values || !parts[i].values.empty();
    figures += (figures.empty() ? "" : "; ") + figures_of(parts[i]);
  }
  if (!any_values) figures = "the result has no values by seed that the rule compares";
  judged.figures = failed.empty() ? figures : fmt::format("{}; {}", failed, figures);
  if (failed.empty() && has_values && !parts.empty()) {
    judged.verdict = all_hold ? verdicts::kSupported : one_fails ? verdicts::kRefuted : verdicts::kInconclusive;
  }
  return judged;
}

}  // namespace rf::reproduce
