// What an experiment is given, without a terminal and without facts about the machine.
#pragma once

#include <string>

#include "experiment.h"

namespace rf::reproduce {

class SilentContext {
 public:
  SilentContext(const std::string& output, const std::string& data)
      : context{.shared_dir = output,
                .data_dir = data,
                .note = {},
                .progress = progress_,
                .process = nlohmann::json::object(),
                .log = log} {}
  SilentContext(const SilentContext&) = delete;

 private:
  io::Progress progress_;

 public:
  RunLog log;
  const Context context;
};

}  // namespace rf::reproduce
