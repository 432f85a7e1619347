// What is made of the files of --data is made again when one of them is another.
#include "data_sets.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "rf/io/files.h"
#include "silent_context.h"
#include "tuned_models.h"

namespace rf::reproduce {
namespace {

class DataSets : public testing::Test {
 protected:
  DataSets() : directory_(testing::TempDir() + "data_sets_test") {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_ + "/set");
    write("old");
  }
  ~DataSets() override { std::filesystem::remove_all(directory_); }
  void write(const std::string& bytes) const { io::write_file(directory_ + "/set/a.tsv", bytes); }

  std::string directory_;
};

TEST_F(DataSets, IdentityIsThatOfTheBytes) {
  const nlohmann::json before = identity_of(directory_, {"set/a.tsv"});
  EXPECT_EQ(before.size(), 1U);
  EXPECT_EQ(identity_of(directory_, {"set/a.tsv"}), before);
  write("new");
  EXPECT_NE(identity_of(directory_, {"set/a.tsv"}), before);
}

TEST_F(DataSets, TaskFilesAreMadeAgain) {
  const SilentContext silent(directory_ + "/output", directory_);
  int made = 0;
  const auto files = [&](const nlohmann::json& how) {
    return task_files(silent.context, {"task", how, {"set/a.tsv"}}, [&] {
      ++made;
      const nlohmann::json a = {{"text", "a"}, {"label", "0"}}, b = {{"text", "b"}, {"label", "1"}};
      return TaskRecords{.train = {a}, .valid = {a, b}, .test = {}};
    });
  };
  const train::TaskFiles first = files(1);
  EXPECT_EQ(io::read_file(first.valid.front()), "{\"label\":\"1\",\"text\":\"b\"}\n");  // a was trained on
  EXPECT_TRUE(first.test.empty());
  files(1);
  EXPECT_EQ(made, 1);
  files(2);
  EXPECT_EQ(made, 2);
  write("new");
  files(2);
  EXPECT_EQ(made, 3);
}

}  // namespace
}  // namespace rf::reproduce
