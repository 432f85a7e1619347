// The run directory: which ones are taken, and the leftovers of a process killed before its first checkpoint.
#include "rf/train/run_directory.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "rf/io/files.h"
#include "support.h"

namespace rf::train {
namespace {

using Use = RunDirectory::Use;

TEST(RunDirectory, KilledWhileTheRunFileWasWritten) {
  for (const Use use : {Use::kFresh, Use::kResume}) {
    const TemporaryPath directory;
    io::write_file(directory / "run.json.tmp.12.0", "{");
    EXPECT_FALSE(RunDirectory(directory.path(), use).has("run.json"));
    EXPECT_FALSE(std::filesystem::exists(directory / "run.json.tmp.12.0"));
  }
}

TEST(RunDirectory, ARefusedDirectoryIsNotTouched) {
  for (const Use use : {Use::kFresh, Use::kResume}) {
    const TemporaryPath directory;
    io::write_file(directory / "a.txt", "text");
    io::write_file(directory / "b.txt.tmp.12.0", "text");
    expect_has(error_of([&] { RunDirectory(directory.path(), use); }), "with a.txt in it");
    EXPECT_EQ(directory.entries(), 2u);
  }
}

TEST(RunDirectory, IsUsedByOne) {
  const TemporaryPath directory;
  const RunDirectory first(directory.path(), Use::kFresh);
  expect_has(error_of([&] { RunDirectory(directory.path(), Use::kFresh); }), "which another one holds");
}

}  // namespace
}  // namespace rf::train
