// The kinds of tasks, each defined in its own file; table.cpp lists them.
#pragma once

#include "task.h"

namespace rf::train {

TaskKind classification_kind();
TaskKind regression_kind();
TaskKind triples_kind();
TaskKind choice_kind();
TaskKind tokens_kind();
TaskKind answers_kind();

}  // namespace rf::train
