// Verdicts: from a rule and the measured values of a result.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rules.h"

namespace rf::reproduce {

namespace verdicts {
inline constexpr const char* kProved = "proved";        // mathematics, checked numerically
inline constexpr const char* kSupported = "supported";  // every part of the rule holds
inline constexpr const char* kRefuted = "refuted";      // the opposite of a part holds
inline constexpr const char* kInconclusive = "inconclusive";
inline constexpr const char* kSmokeRun = "smoke run";
}  // namespace verdicts

// A number in a file; infinity for null, as JSON has no number that is not finite.
double number_of(const nlohmann::json& value);

// A value that a rule may compare.
struct Measure {
  std::string name;  // with its unit (measures in rules.h)
  std::string arm;
  uint64_t seed = 0;
  double value = 0;
};

// The learning rates that were tried for an arm, and the held-out loss (or the metric, negated) with each, by short
// runs and by whole ones.
struct TriedRates {
  std::string arm;
  std::vector<double> rates, losses;                        // rising rates
  std::vector<double> whole_rates = {}, whole_losses = {};  // the same; empty where whole runs decided nothing
  nlohmann::json training = nlohmann::json::array();        // the runs' records; [] where one run tried all rates

  // The best of the whole runs, or of the short ones.
  double chosen() const;
  // Rates tried on both sides of the chosen one were worse; of lower ones by whole runs, where there are any.
  bool is_chosen_inside() const;
};

// What the rules read of a result.
struct Evidence {
  std::vector<Measure> measures;
  std::vector<TriedRates> rates;
  int64_t revision = 1;              // of the experiment that made them
  std::vector<uint64_t> seeds = {};  // of which each arm must have a value; empty: those that there are

  // By seed; empty if there are none.
  std::map<uint64_t, double> values(const std::string& measure, const std::string& arm) const;
  // The arm's values less those of the other, of the seeds that both have; the values where `against` is "".
  std::vector<double> differences(const std::string& measure, const std::string& arm, const std::string& against) const;
};
// Throws std::invalid_argument if a measure has two values of one arm and seed.
void check_measures(const std::vector<Measure>& measures);
// `result` is a result.json; keys that are absent are empty. Throws an exception of JSON for values of another type.
Evidence evidence_of(const nlohmann::json& result);
void to_json(nlohmann::json& json, const Measure& measure);
void to_json(nlohmann::json& json, const TriedRates& rates);

struct Verdict {
  std::string verdict, figures;
  // [{"text", "role": "part" or "precondition", "mean", "low", "high", "seeds", "p", "p_holm", "outcome"}, ..]; the
  // interval is that of kConfidence, of paired differences over seeds. Of fractions, which the text has in per cent,
  // "unit" is "%" or "points"; of a precondition on a learning rate "tuned" is the arm.
  nlohmann::json checks = nlohmann::json::array();
};
// By the rule. Parts are corrected for their number (Holm). A precondition that is not shown to hold, values that are
// missing, and one seed alone make it inconclusive.
Verdict judge(const Rule& rule, const Evidence& evidence);

}  // namespace rf::reproduce
