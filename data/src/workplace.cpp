// Where prepare() works (workplace.h).
#include "workplace.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "manifest.h"
#include "rf/io/error.h"
#include "rf/io/files.h"

namespace rf::data {

namespace fs = std::filesystem;

Workplace::Workplace(const std::string& output)
    : output_(fs::weakly_canonical(fs::absolute(output).lexically_normal())) {
  if (!output_.has_filename()) output_ = output_.parent_path();
  check_output();
  directory_ = output_.string() + ".preparing";
  try {
    fs::create_directories(directory_);
    lock();
    for (const auto& left : fs::directory_iterator(directory_)) fs::remove_all(left.path());
  } catch (const fs::filesystem_error& error) {
    if (lock_ >= 0) ::close(lock_);
    fail_to_write(error.code());
  }
}

Workplace::~Workplace() {
  std::error_code ignored;
  // Where it has become `output`, what is called `directory_` is another process's.
  if (!published_) fs::remove_all(directory_, ignored);
  ::close(lock_);
}

void Workplace::publish() {
  const fs::path old = directory_.string() + ".old";
  std::error_code error;
  io::sync_directory(directory_.string());
  fs::remove_all(old, error);
  if (fs::exists(output_)) fs::rename(output_, old, error);
  if (!error) fs::rename(directory_, output_, error);
  if (error) {
    fail("prepare", "{} must be replaceable by {}, got: {}", output_.string(), directory_.string(), error.message());
  }
  published_ = true;
  io::sync_directory(output_.parent_path().string());
  fs::remove_all(old, error);
}

// Takes the lock, unless the file system knows none.
void Workplace::lock() {
  lock_ = ::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (lock_ < 0) fail_to_write({errno, std::generic_category()});
  const bool is_held = ::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  // A process that ended meanwhile has removed the directory or given it its last name.
  struct stat locked {};
  struct stat named {};
  const bool is_gone = ::fstat(lock_, &locked) != 0 || ::lstat(directory_.c_str(), &named) != 0 ||
                       locked.st_dev != named.st_dev || locked.st_ino != named.st_ino;
  if (!is_held && !is_gone) return;
  ::close(lock_);
  fail("prepare", "the output must be written by one process, got {}, which another one holds", directory_.string());
}

void Workplace::fail_to_write(const std::error_code& error) const {
  fail("prepare", "{} must be writable, got: {}", directory_.string(), error.message());
}

void Workplace::check_output() const {
  std::error_code error;
  if (!fs::exists(output_, error) && !fs::is_symlink(output_, error)) return;
  if (!fs::is_directory(output_, error))
    fail("prepare", "the output must be a directory, got the file {}", output_.string());
  if (fs::is_empty(output_)) return;
  if (!fs::exists(output_ / kManifestName)) {
    fail("prepare", "the output must be a new or empty directory or one that prepare made, got {} without {}",
         output_.string(), kManifestName);
  }
  read_manifest(output_.string());
}

}  // namespace rf::data
