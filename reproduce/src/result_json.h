// result.json: from what an experiment measured, with the verdicts of its rules (docs/reproduce.md, "Output").
#pragma once

#include <nlohmann/json.hpp>

#include "experiment.h"

namespace rf::reproduce {

// Without settings, seeds and seconds.
nlohmann::json result_json(const Experiment& experiment, const Result& result, const RunLog& log, Scale scale);

// Gives a result the verdicts of the rules as they are: "verdicts", "figures", "checks" and "rules", each by claim.
// Claims without a rule are decided by what the experiment found; trained experiments must have rules.
void judge_result(const Experiment& experiment, nlohmann::json& result);

// The rules of an experiment by claim, as results and register.json have them.
nlohmann::json rules_json(const Experiment& experiment);

}  // namespace rf::reproduce
