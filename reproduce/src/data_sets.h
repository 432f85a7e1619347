// The data sets of --data, one folder each, and where to get them. docs/reproduce.md lists them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace rf::reproduce {

// jieba's dictionary.
inline constexpr const char* kDictionary = "vocabs/jieba_dict.txt";

// Those of `files` (relative to data_dir) that do not exist; all of them if data_dir is "".
std::vector<std::string> missing_files(const std::string& data_dir, const std::vector<std::string>& files);
// "en_books/books_train.jsonl (public-domain English books as JSON lines with `text`: github ...)", with the source
// once for each folder. Throws std::logic_error for a folder without a description.
std::string where_to_get(const std::vector<std::string>& files);
// A hash of each file's bytes by its name: things made from the files are valid while these are the same.
nlohmann::json identity_of(const std::string& data_dir, const std::vector<std::string>& files);

}  // namespace rf::reproduce
