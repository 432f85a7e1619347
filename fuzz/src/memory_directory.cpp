// A directory in memory (see the header).
#include "memory_directory.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace rf::fuzz {

namespace fs = std::filesystem;

MemoryDirectory::MemoryDirectory() {
  std::error_code error;
  const fs::path memory = "/dev/shm";
  path_ = ((fs::is_directory(memory, error) ? memory : fs::temp_directory_path()) / "rf_fuzz_XXXXXX").string();
  if (::mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot make " + path_);
}

MemoryDirectory::~MemoryDirectory() {
  std::error_code error;
  fs::remove_all(path_, error);
}

void MemoryDirectory::put(const std::string& name, std::string_view bytes) const {
  const std::string path = path_ + "/" + name;
  fs::remove(path);
  if (!bytes.empty()) std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace rf::fuzz
