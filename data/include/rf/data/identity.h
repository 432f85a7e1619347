// Identifies the contents of prepared data directories and other files.
#pragma once

#include <span>
#include <string>

namespace rf::data {

// A hash of the shards' headers, which contain counts, vocabulary and checksums.
std::string identity(const std::string& data_dir);
// A hash of the content of files, in this order.
std::string identity_of_files(std::span<const std::string> paths);

}  // namespace rf::data
