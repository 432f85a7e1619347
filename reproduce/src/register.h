// The claims that the sources make about rotary position embedding, in our own words, and the tables that they print.
// Each experiment names the claims that it tests.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace rf::reproduce {

struct Claim {
  std::string id;
  std::string text;
  std::string source;
  // The status before any experiment: "testable", "experiment", "published only" (the numbers need data or machines
  // that are not available), "qualified" (not true as stated; the note explains it), "no claim".
  std::string status;
  std::string note;
};
const std::vector<Claim>& claims();

// {"claims": [{id, text, source, status, note, experiments}], "tables": [{id, title, source, columns, rows}],
// "experiments": [{name, spec, title, kind, revision, expected, budget, hours, exceptions, rules, settings}],
// "rule_changes": [{claims, change, reason}], "encodings": [{name, summary, source}], "method": text}.
nlohmann::json register_json();

}  // namespace rf::reproduce
