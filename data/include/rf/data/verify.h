// Checks every shard of a data directory, or of one part (prepare.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rf/io/progress.h"

namespace rf::data {

struct VerifyReport {
  int64_t shards = 0, bytes = 0, documents = 0, tokens = 0;  // counts of intact shards
  struct Damage {
    std::string file;  // its name in the directory
    std::string error;
  };
  std::vector<Damage> damaged{};
};

// Reads all shards in turn, continuing after a damaged one. Checks the layout and the checksum of each (shard.h), and
// that they match data.json. Memory does not grow with the data. Throws Error if data.json is missing or malformed.
VerifyReport verify(const std::string& data_dir, io::Progress& progress);

}  // namespace rf::data
