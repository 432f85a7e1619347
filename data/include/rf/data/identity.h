// Identifies the contents of prepared data directories and other files, and compares the settings of runs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "rf/text/tokenizer.h"

namespace rf::data {

// A hash of the shards' headers, which contain counts, vocabulary and checksums.
std::string identity(const std::string& data_dir);
// A hash of the content of files, in this order.
std::string identity_of_files(std::span<const std::string> paths);
// A hash of a model directory's configuration, weights, tokenizer and the dictionaries given with it: whether two runs
// use the same model.
std::string model_identity(const std::string& model_dir, const text::LoadOptions& load = {});

// The first setting that has changed, as "40 at /seed where there was 30"; "" without a change.
std::string first_difference(const nlohmann::json& before, const nlohmann::json& now);

}  // namespace rf::data
