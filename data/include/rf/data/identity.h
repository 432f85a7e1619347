// Whether two prepared data directories hold the same.
#pragma once

#include <string>

namespace rf::data {

// A hash of the shards' headers, which hold counts, vocabulary and checksums.
std::string identity(const std::string& data_dir);

}  // namespace rf::data
