// The table of tasks.
#include <fmt/ranges.h>

#include "rf/io/error.h"
#include "rf/io/nearest_name.h"
#include "rf/io/printable.h"
#include "rf/tasks/task.h"

// One line for each kind, which its file defines.
#define RF_TASK_KINDS(X) \
  X(classification)      \
  X(multi_label)         \
  X(regression)          \
  X(triples)             \
  X(choice)              \
  X(tokens)              \
  X(answers)

namespace rf::tasks {

#define DECLARE(name) TaskKind name##_kind();
#define CALL(name) name##_kind(),
RF_TASK_KINDS(DECLARE)

const std::vector<TaskKind>& task_kinds() {
  static const std::vector<TaskKind> kinds = {RF_TASK_KINDS(CALL)};
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

}  // namespace rf::tasks
