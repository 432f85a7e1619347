// Files that one process at a time has: a file over several runs, which stays until it is complete, and locks, which
// end with a process that is killed: tests/cli/test_embed.py and tests/cli/test_resume.py kill real ones.

#include "io/support.h"
#include "rf/io/files.h"

namespace rf::io {
namespace {

TEST(ResumableFile, ContinuesWhereItWas) {
  const TempDir dir;
  const std::string path = dir / "a";
  {
    ResumableFile file(path);
    EXPECT_EQ(file.size(), 0u);
    file.write("0123456");
    file.sync();
  }
  EXPECT_EQ(read_file(path + ".part"), "0123456");
  ResumableFile file(path);
  EXPECT_EQ(file.size(), 7u);
  file.truncate(4);
  file.write("ab");
  file.write_at(1, std::as_bytes(std::span("XY", 2)));
  EXPECT_EQ(file.size(), 6u);
  expect_error([&] { file.write_at(5, std::as_bytes(std::span("XY", 2))); }, {path, "6 bytes", "2 bytes at 5"});
  file.commit();
  EXPECT_EQ(read_file(path), "0XY3ab");
  EXPECT_EQ(dir.entries(), 1u);
}

TEST(ResumableFile, BelongsToOne) {
  const TempDir dir;
  {
    const ResumableFile first(dir / "a");
    expect_error([&] { const ResumableFile second(dir / "a"); }, {dir / "a", "one process at a time"});
    const ResumableFile other(dir / "b");
  }
  ResumableFile again(dir / "a");
  again.remove();
  EXPECT_FALSE(std::filesystem::exists(dir / "a.part"));
}

TEST(ResumableFile, RefusesWhatIsNoFile) {
  const TempDir dir;
  std::filesystem::create_directories(dir / "a");
  std::filesystem::create_directories(dir / "b.part");
  expect_error([&] { const ResumableFile file(dir / "a"); }, {dir / "a", "regular file"});
  expect_error([&] { const ResumableFile file(dir / "b"); }, {dir / "b.part", "cannot create"});
  write_file(dir / "file", "");
  expect_error([&] { const ResumableFile file(dir / "file/c"); }, {"file/c.part", "cannot create", "Not a directory"});
}

TEST(FileLock, HasOneHolder) {
  const TempDir dir;
  {
    const auto first = FileLock::try_hold(dir / "a");
    ASSERT_TRUE(first);
    EXPECT_FALSE(FileLock::try_hold(dir / "a"));
    EXPECT_TRUE(FileLock::try_hold(dir / "b"));
  }
  EXPECT_TRUE(FileLock::try_hold(dir / "a"));
}

TEST(FileLock, NamesAFileThatCannotBeOpened) {
  const TempDir dir;
  expect_error([&] { FileLock::try_hold(dir / "none/a"); }, {dir / "none/a", "cannot open"});
}

}  // namespace
}  // namespace rf::io
