// XXH3 over files (file_hash.h).
#include "file_hash.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/model/checkpoint_files.h"
#include "rf/model/position_terms.h"

namespace rf::engine {

struct FileHash::State {
  XXH3_state_t xxh;
};

FileHash::FileHash() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh); }
FileHash::~FileHash() = default;

void FileHash::add_text(std::string_view text) {
  const uint64_t size = text.size();
  XXH3_128bits_update(&state_->xxh, &size, sizeof size);
  XXH3_128bits_update(&state_->xxh, text.data(), text.size());
}

void FileHash::add_file(const std::string& path) {
  add_text(std::filesystem::path(path).filename().string());
  add_bytes_of(path);
}

void FileHash::add_bytes_of(const std::string& path) {
  constexpr size_t kBlock = size_t{1} << 20;
  std::ifstream file(path, std::ios::binary);
  std::string block(kBlock, '\0');
  uint64_t size = 0;
  while (file.read(block.data(), kBlock) || file.gcount() > 0) {
    const auto count = static_cast<size_t>(file.gcount());
    XXH3_128bits_update(&state_->xxh, block.data(), count);
    size += count;
  }
  if (!file.eof()) fail(path, "must be readable, got an error of reading");
  XXH3_128bits_update(&state_->xxh, &size, sizeof size);
}

std::string FileHash::hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::vector<std::string> model_files(const std::string& path) {
  namespace fs = std::filesystem;
  if (!fs::is_directory(path)) return {};
  std::vector<std::string> files = checkpoint_paths(path);
  for (const char* name : {"config.json", kPositionTermsFile}) {
    const std::string file = (fs::path(path) / name).string();
    if (io::has_file(file)) files.push_back(file);
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace rf::engine
