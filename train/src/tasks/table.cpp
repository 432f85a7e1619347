// The table of tasks: one line per kind.
#include <fmt/ranges.h>

#include "kinds.h"
#include "rf/io/error.h"
#include "rf/io/nearest_name.h"
#include "rf/io/printable.h"

namespace rf::train {

const std::vector<TaskKind>& task_kinds() {
  static const std::vector<TaskKind> kinds = {
      classification_kind(), regression_kind(), triples_kind(), choice_kind(), tokens_kind(), answers_kind(),
  };
  return kinds;
}

const TaskKind& task_kind(const std::string& name) {
  std::vector<std::string_view> names;
  for (const TaskKind& kind : task_kinds()) {
    if (kind.name == name) return kind;
    names.emplace_back(kind.name);
  }
  const std::string_view nearest = io::nearest_name(name, names);
  fail("task", "the task must be one of {}, got {}{}", fmt::join(names, ", "), io::printable(name),
       nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest));
}

}  // namespace rf::train
