#include "staging_directory.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <vector>

#include "manifest.h"
#include "rf/io/error.h"
#include "rf/io/files.h"
#include "rf/text/tokenizer.h"

namespace rf::data {

namespace fs = std::filesystem;

namespace {

// Suffixes of directories next to the output.
const std::string kWorking = ".preparing", kOld = ".old";
constexpr const char* kMark = ".roformer-prepare";  // in a directory that is being prepared

// The directory's path, with links resolved.
fs::path resolved(const std::string& output) {
  const fs::path path = fs::weakly_canonical(fs::absolute(output).lexically_normal());
  return path.has_filename() ? path : path.parent_path();
}

// The files of a data directory that prepare wrote, data.json last. Throws Error as read_manifest does.
std::vector<std::string> files_of_data(const fs::path& directory) {
  const Manifest manifest = read_manifest(directory.string());
  std::vector<std::string> names = manifest.tokenizer_files;
  for (const auto& [split, contents] : manifest.splits) {
    names.insert(names.end(), contents.shards.begin(), contents.shards.end());
    names.push_back(contents.token_counts);
  }
  names.emplace_back(kManifestName);
  return names;
}

// An entry of the directory that is not one of the given files, if any.
std::optional<std::string> foreign_entry(const fs::path& directory, const std::vector<std::string>& names) {
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    const bool ours = std::ranges::find(names, entry.path().filename().string()) != names.end();
    if (!ours || entry.is_directory()) return entry.path().string();
  }
  return std::nullopt;
}

void check_data_directory(const fs::path& directory) {
  if (fs::is_empty(directory)) return;
  if (!fs::exists(directory / kManifestName)) {
    fail("prepare", "the output must be a new or empty directory or one that prepare made, got {} without {}",
         directory.string(), kManifestName);
  }
  if (const auto foreign = foreign_entry(directory, files_of_data(directory))) {
    fail("prepare", "the output must hold nothing but what prepare wrote, which it replaces, got {}", *foreign);
  }
}

void check_output(const fs::path& output) {
  std::error_code error;
  if (!fs::exists(output, error) && !fs::is_symlink(output, error)) return;
  if (!fs::is_directory(output, error))
    fail("prepare", "the output must be a directory, got the file {}", output.string());
  check_data_directory(output);
}

// Removes the files that the manifest names, and the directory if it is then empty; other files are kept.
void remove_data_directory(const fs::path& directory) {
  std::error_code ignored;
  for (const std::string& name : files_of_data(directory)) fs::remove(directory / name, ignored);
  fs::remove(directory, ignored);
}

bool is_data_directory(const fs::path& directory) {
  return fs::exists(directory / kManifestName) && !foreign_entry(directory, files_of_data(directory));
}

// Detects the mark, or the temporary file that becomes it, whose name begins with the mark's.
bool is_marked(const fs::path& directory) {
  return std::any_of(fs::directory_iterator(directory), fs::directory_iterator(), [](const fs::directory_entry& entry) {
    return entry.path().filename().string().starts_with(kMark);
  });
}

void empty_but_mark(const fs::path& directory) {
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    if (entry.path().filename() != kMark) fs::remove_all(entry.path());
  }
}

// The mark is removed last, so that a half-removed directory still has it if the process is killed.
void remove_marked(const fs::path& directory) noexcept {
  try {
    empty_but_mark(directory);
    fs::remove_all(directory);
  } catch (const fs::filesystem_error&) {  // files that cannot be removed remain
  }
}

}  // namespace

std::error_code exchange_names(const fs::path& a, const fs::path& b) {
  const bool done = ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
  return done ? std::error_code() : std::error_code(errno, std::generic_category());
}

std::vector<std::string> StagingDirectory::written_paths(const std::string& output) {
  const std::string path = resolved(output).string();
  return {path, path + kWorking, path + kWorking + kOld};
}

std::vector<std::string> StagingDirectory::paths_of(const std::string& output) {
  check_output(resolved(output));
  return written_paths(output);
}

StagingDirectory::StagingDirectory(const std::string& output)
    : output_(resolved(output)), directory_(paths_of(output)[1]) {
  try {
    fs::create_directories(directory_);
    lock();
    clear_leftovers();
  } catch (const fs::filesystem_error& error) {
    if (lock_ >= 0) ::close(lock_);
    fail_to_write(error.code());
  } catch (...) {
    if (lock_ >= 0) ::close(lock_);
    throw;
  }
}

StagingDirectory::~StagingDirectory() {
  // After publish(), a directory with the name `directory_` belongs to another process.
  if (!published_) remove_marked(directory_);
  ::close(lock_);
}

// Empties a directory left behind by a killed process: it has our mark, or contains only a data directory.
void StagingDirectory::clear_leftovers() {
  if (!is_marked(directory_) && !is_data_directory(directory_) && !fs::is_empty(directory_)) {
    fail("prepare", "{} must be free to work in, got a directory that prepare did not make, with {}",
         directory_.string(), fs::directory_iterator(directory_)->path().filename().string());
  }
  io::write_file((directory_ / kMark).string(), "roformer prepare works here until the directory is whole\n");
  empty_but_mark(directory_);
}

void StagingDirectory::publish(ExchangeNames exchange) {
  std::error_code error;
  check_output(output_);
  fs::remove(directory_ / kMark, error);
  io::sync_directory(directory_.string());
  if (fs::exists(output_) && !fs::is_empty(output_)) {
    replace(exchange);
  } else {
    fs::rename(directory_, output_, error);
    if (error) fail_to_replace(error);
    published_ = true;
  }
  io::sync_directory(output_.parent_path().string());
}

// Locks the old directory while it has the name of the staging directory, which another process could take.
void StagingDirectory::replace(ExchangeNames exchange) {
  const int old_lock = ::open(output_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (old_lock >= 0) ::flock(old_lock, LOCK_EX | LOCK_NB);
  const std::error_code error = exchange(directory_, output_);
  if (!error) {
    published_ = true;
    remove_data_directory(directory_);
  } else if (error == std::errc::invalid_argument || error == std::errc::function_not_supported ||
             error == std::errc::operation_not_supported) {
    move_aside();
  }
  if (old_lock >= 0) ::close(old_lock);
  if (!published_) fail_to_replace(error);
}

void StagingDirectory::move_aside() {
  const fs::path old = directory_.string() + kOld;
  std::error_code error;
  if (fs::exists(old)) check_data_directory(old);  // left behind by a killed process, or not made by prepare()
  if (fs::exists(old)) remove_data_directory(old);
  fs::rename(output_, old, error);
  if (error) fail_to_replace(error);
  fs::rename(directory_, output_, error);
  if (error) {
    std::error_code lost;
    fs::rename(old, output_, lost);
    fail_to_replace(error);
  }
  published_ = true;
  remove_data_directory(old);
}

// Takes the lock, unless the file system does not support locks.
void StagingDirectory::lock() {
  lock_ = ::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (lock_ < 0) fail_to_write({errno, std::generic_category()});
  const bool is_held = ::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  // Another process that ended in the meantime has removed the directory or renamed it to its output.
  struct stat locked {};
  struct stat named {};
  const bool is_gone = ::fstat(lock_, &locked) != 0 || ::lstat(directory_.c_str(), &named) != 0 ||
                       locked.st_dev != named.st_dev || locked.st_ino != named.st_ino;
  if (!is_held && !is_gone) return;
  fail("prepare", "the output must be written by one process, got {}, which another one holds", directory_.string());
}

void StagingDirectory::fail_to_write(const std::error_code& error) const {
  fail("prepare", "{} must be writable, got: {}", directory_.string(), error.message());
}

void StagingDirectory::fail_to_replace(const std::error_code& error) const {
  fail("prepare", "{} must be replaceable by {}, got: {}", output_.string(), directory_.string(), error.message());
}

}  // namespace rf::data
