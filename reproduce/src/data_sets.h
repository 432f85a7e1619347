// What --data may hold: sets of files, a folder each, and where each set is had. docs/reproduce.md lists them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace rf::reproduce {

// Of `files` (relative to data_dir), those that are not there; all of them when data_dir is "".
std::vector<std::string> missing_files(const std::string& data_dir, const std::vector<std::string>& files);
// "en_books/books_train.jsonl (public-domain English books as JSON lines with `text`: github ...)", with the source
// once for each folder. Throws std::logic_error for a folder that nobody described.
std::string where_to_get(const std::vector<std::string>& files);
// A hash of each file's bytes by its name: what is made of the files is good for as long as these are.
nlohmann::json identity_of(const std::string& data_dir, const std::vector<std::string>& files);

}  // namespace rf::reproduce
