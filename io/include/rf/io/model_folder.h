// What a folder without config.json holds, for messages of readers of models and tokenizers.
#pragma once

#include <string>

#include "rf/io/files.h"

namespace rf::io {

inline const char* found_without_model(const std::string& folder) {
  return has_file(folder + "/adapter_config.json")
             ? "an adapter of PEFT (adapter_config.json; merge it with its model and save that)"
             : "none";
}

}  // namespace rf::io
