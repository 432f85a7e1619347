// The files that a command writes; checks that they do not include an input.
#pragma once

#include <string>
#include <vector>

namespace rf::io {

// The files or directories at the paths `outputs`, and the files behind standard output and standard error. Files are
// compared by identity, not by path: another spelling, a link and a hard link are the same file.
class WrittenFiles {
 public:
  // Throws Error for an output in a directory that is not writable. Empty paths and "-" are ignored.
  explicit WrittenFiles(const std::vector<std::string>& outputs = {});

  // The name of the output that is or contains the file, otherwise "". "-" is standard input.
  std::string holding(const std::string& path) const;
  // Throws Error if an output is or contains one of the input files. Empty paths are ignored.
  void check_inputs(const std::vector<std::string>& inputs) const;

 private:
  struct Output {
    unsigned long long device, number;
    std::string name;
  };
  std::vector<Output> outputs_;
};

}  // namespace rf::io
