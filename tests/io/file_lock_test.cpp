// Locks among processes: one holder at a time, and none after a process was killed.
#include "rf/io/file_lock.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "io/support.h"

namespace rf::io {
namespace {

using rf::testing::expect_error;
using rf::testing::TempDir;

TEST(FileLock, HasOneHolder) {
  const TempDir dir;
  {
    const auto first = FileLock::try_hold(dir.file("a"));
    ASSERT_TRUE(first);
    EXPECT_FALSE(FileLock::try_hold(dir.file("a")));
    EXPECT_TRUE(FileLock::try_hold(dir.file("b")));
  }
  EXPECT_TRUE(FileLock::try_hold(dir.file("a")));
}

TEST(FileLock, IsLetGoWhenTheProcessIsKilled) {
  const TempDir dir;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    for (;;) {
      const auto held = FileLock::try_hold(dir.file("a"));
      while (held) ::pause();
    }
  }
  while (FileLock::try_hold(dir.file("a"))) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ::kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(FileLock::try_hold(dir.file("a")));
}

TEST(FileLock, NamesAFileThatCannotBeOpened) {
  const TempDir dir;
  expect_error([&] { FileLock::try_hold(dir.file("none/a")); }, {dir.file("none/a"), "cannot open"});
}

}  // namespace
}  // namespace rf::io
