// The claims that the sources make about rotary position embedding, and the tables that they print. Data, in our own
// words; which experiments bear on a claim is said by the experiments.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace rf::reproduce {

struct Claim {
  std::string id;
  std::string text;
  std::string source;
  // What is known of it before any experiment: "testable", "experiment", "published only" (the numbers need data or
  // machines that are not at hand), "qualified" (not true as it stands; the note says how), "no claim".
  std::string status;
  std::string note;
};
const std::vector<Claim>& claims();

// {"claims": [{id, text, source, status, note, experiments}], "tables": [{id, title, source, columns, rows}]}.
nlohmann::json register_json();

}  // namespace rf::reproduce
