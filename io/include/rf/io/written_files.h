// The files that a command writes, so that none of its inputs is among them.
#pragma once

#include <string>
#include <vector>

namespace rf::io {

// What is at the paths `outputs`, files or directories, and the files to which standard output and standard error go.
// Files are compared by what they are, not by their paths: another spelling, a link and a hard link are the same file.
class WrittenFiles {
 public:
  explicit WrittenFiles(const std::vector<std::string>& outputs = {});

  // The name of the output that the file is or lies in, "" if there is none. "-" is standard input.
  std::string holding(const std::string& path) const;
  // Throws Error if one of the inputs, which are files, is held. Empty paths are ignored.
  void check_inputs(const std::vector<std::string>& inputs) const;

 private:
  struct Output {
    unsigned long long device, number;
    std::string name;
  };
  std::vector<Output> outputs_;
};

}  // namespace rf::io
