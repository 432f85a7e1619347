// Memory maps and atomic replacement: what is under a name is the old file or the new one, whole, whatever fails.
#include "rf/io/files.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "io/support.h"

namespace rf::io {
namespace {

// A disk that is full after `bytes`, for this process: writes beyond fail with EFBIG while the object lives.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    old_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit small{bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit old_{};
  void (*old_handler_)(int) = nullptr;
};

TEST(Files, WriteAndRead) {
  const TempDir dir;
  const std::string text("line\n\0rest", 10);
  write_file(dir / "a", text);
  EXPECT_EQ(read_file(dir / "a"), text);
  const std::string blocks = std::string(700'000, 'x') + std::string(300'001, 'y');  // of reading
  write_file(dir / "a", blocks);
  EXPECT_EQ(read_file(dir / "a"), blocks);
  const MappedFile old(dir / "a");
  write_file(dir / "a", "");
  EXPECT_EQ(read_file(dir / "a"), "");
  EXPECT_TRUE(MappedFile(dir / "a").bytes().empty());
  ASSERT_EQ(old.bytes().size(), blocks.size()) << "a mapping outlives a replacement";
  EXPECT_EQ(old.bytes().back(), std::byte{'y'});
  EXPECT_EQ(dir.entries(), 1u);
}

// Neither waits for the writer of a pipe, who may never come.
TEST(Files, WhatIsNoRegularFileIsRefusedByName) {
  const TempDir dir;
  const std::string pipe = dir / "pipe", absent = dir / "absent";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, dir.path(), std::string("/dev/zero")}) {
    expect_error([&] { read_file(path); }, {path, "regular file"});
    expect_error([&] { MappedFile{path}; }, {path, "regular file"});
    expect_error([&] { AtomicFile{path}; }, {path, "regular file"});
  }
  expect_error([&] { read_file(absent); }, {absent, "No such file or directory"});
  expect_error([&] { MappedFile{absent}; }, {absent, "No such file or directory"});
  expect_error([&] { sync_directory(absent); }, {absent, "No such file or directory"});
  write_file(dir / "folder/inside/file", "x");
  EXPECT_EQ(read_file(dir / "folder/inside/file"), "x");
  expect_error([&] { write_file(dir / "folder/inside/file/more", "x"); }, {"file/more", "Not a directory"});
}

// Before a byte is read: the file has holes where others would have gigabytes.
TEST(Files, WhatIsReadWholeHasALimit) {
  const TempDir dir;
  const std::string path = dir / "a";
  write_file(path, "{}");
  std::filesystem::resize_file(path, uintmax_t{3} << 30);
  expect_error([&] { read_json(path); }, {path, "at most 268435456 bytes", "got 3221225472"});
}

TEST(AtomicFile, IsNotThereBeforeCommit) {
  const TempDir dir;
  write_file(dir / "a", "old");
  {
    AtomicFile file(dir / "a");
    file.write("new and longer");
    EXPECT_EQ(read_file(dir / "a"), "old");
    EXPECT_EQ(dir.entries(), 2u);
  }
  EXPECT_EQ(read_file(dir / "a"), "old");
  EXPECT_EQ(dir.entries(), 1u) << "the temporary file must go";
}

TEST(AtomicFile, PatchesWhatIsWritten) {
  const TempDir dir;
  AtomicFile file(dir / "a");
  file.write("0123456789");
  const std::string patch = "ab";
  file.write_at(3, std::as_bytes(std::span(patch)));
  file.write("end");
  EXPECT_EQ(file.size(), 13u);
  expect_error([&] { file.write_at(12, std::as_bytes(std::span(patch))); }, {"within the 13 bytes", "2 bytes at 12"});
  expect_error([&] { file.write_at(SIZE_MAX, std::as_bytes(std::span(patch))); }, {"within the 13 bytes"});
  file.commit();
  EXPECT_EQ(read_file(dir / "a"), "012ab56789end");
}

TEST(AtomicFile, FullDiskLeavesTheOldFile) {
  const TempDir dir;
  const std::string path = dir / "a";
  write_file(path, "old");
  const std::string large(10'000, 'n');
  {
    const FullDisk disk(4096);
    expect_error([&] { write_file(path, large); }, {path, "cannot write", "File too large"});
  }
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(dir.entries(), 1u) << "the temporary file must go";
  write_file(path, large);
  EXPECT_EQ(read_file(path), large);
}

mode_t permissions(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0);
  return status.st_mode & 0777;
}

TEST(AtomicFile, PermissionsAreThoseOfTheOldFileOrOfTheUmask) {
  const TempDir dir;
  const mode_t old_mask = ::umask(027);
  write_file(dir / "a", "new");
  EXPECT_EQ(permissions(dir / "a"), 0640u);
  for (const mode_t mode : {0600u, 0664u}) {
    ASSERT_EQ(::chmod((dir / "a").c_str(), mode), 0);
    write_file(dir / "a", "replaced");
    EXPECT_EQ(permissions(dir / "a"), mode);
  }
  ::umask(old_mask);
}

TEST(AtomicFile, KeepsASymbolicLink) {
  const TempDir dir;
  write_file(dir / "target", "old");
  std::filesystem::create_symlink(dir / "target", dir / "link");
  write_file(dir / "link", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(dir / "link"));
  EXPECT_EQ(read_file(dir / "target"), "new");
  std::filesystem::create_symlink(dir / "absent", dir / "dangling");
  expect_error([&] { write_file(dir / "dangling", "x"); }, {"dangling", "symbolic link"});
}

// A killed process with this process's id may have left the very names that come next.
TEST(AtomicFile, StaleTemporaryFilesAreNoObstacle) {
  const TempDir dir;
  std::string name;
  {
    const AtomicFile file(dir / "a");
    name = std::filesystem::directory_iterator(dir.path())->path().string();
  }
  const size_t dot = name.rfind('.');
  const int last = std::stoi(name.substr(dot + 1));
  for (int i = 1; i <= 3; ++i) std::ofstream(fmt::format("{}.{}", name.substr(0, dot), last + i)) << "stale";
  write_file(dir / "a", "new");
  EXPECT_EQ(read_file(dir / "a"), "new");
  EXPECT_EQ(dir.entries(), 4u);
}

TEST(AtomicFile, ManyThreadsWriteOneName) {
  const TempDir dir;
  std::vector<std::thread> threads;
  for (char c = 'a'; c < 'e'; ++c) {
    threads.emplace_back([&dir, c] {
      for (int i = 0; i < 5; ++i) write_file(dir / "shared", std::string(1000, c));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string text = read_file(dir / "shared");
  EXPECT_EQ(text, std::string(1000, text.at(0)));
  EXPECT_EQ(dir.entries(), 1u);
}

// Nothing can be thrown where a page is missing: the process must end, and say which of its files it was.
TEST(FilesDeathTest, AFileThatIsCutShortUnderItsMappingIsNamed) {
  const TempDir dir;
  const std::string text(1 << 16, 'x');
  for (const char* name : {"whole", "cut"}) write_file(dir / name, text);
  std::vector<std::unique_ptr<MappedFile>> others;  // as many as the shards of large data
  for (int i = 0; i < 2000; ++i) others.push_back(std::make_unique<MappedFile>(dir / "whole"));
  const auto last = [](const MappedFile& file) { return static_cast<char>(file.bytes().back()); };
  const MappedFile whole(dir / "whole"), cut(dir / "cut");
  std::filesystem::resize_file(dir / "cut", 10);
  EXPECT_EXIT(
      {
        report_lost_pages();
        ::_exit(last(whole) + last(cut) == 0 ? 2 : 3);
      },
      ::testing::ExitedWithCode(1), "cut. a file must keep its size while it is read");
  // A signal of another cause ends the process as it would without the handler.
  EXPECT_EXIT(
      {
        report_lost_pages();
        ::raise(SIGBUS);
        ::raise(SIGBUS);
        ::_exit(3);
      },
      ::testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace rf::io
