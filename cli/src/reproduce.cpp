// roformer reproduce: names its replacement.
#include "command.h"

namespace rf::cli {

namespace {

std::function<int()> configure_reproduce(CLI::App& app, const Common&) {
  app.allow_extras();
  return []() -> int {
    fail_usage("reproduce",
               "the papers' experiments must be run in the source tree, by `python -m experiments NAME --scale tiny "
               "--output DIR --data DIR` (docs/reproduce.md), got roformer reproduce");
  };
}

}  // namespace

Command reproduce_command() {
  return {"reproduce", "Replaced by `python -m experiments` in the source tree", "python -m experiments --list",
          Command::Seed::kNotUsed, configure_reproduce};
}

}  // namespace rf::cli
