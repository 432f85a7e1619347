// A hash over files and texts, in the order in which they are added.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace rf::engine {

class FileHash {
 public:
  FileHash();
  ~FileHash();
  void add_text(std::string_view text);
  // The file's bytes, which are read in blocks: a mapping of the weights would count as memory in use. Throws Error.
  void add_bytes_of(const std::string& path);
  void add_file(const std::string& path);  // its name, too
  std::string hex() const;                 // 128 bits

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The files of a model directory that decide its results, in order; empty for another path. Throws Error.
std::vector<std::string> model_files(const std::string& path);

}  // namespace rf::engine
