// verify(), and data directories that are damaged after they were made.
#include "rf/data/verify.h"

#include "prepare_fixture.h"

namespace rf::data {
namespace {

class Verify : public Prepare {
 protected:
  Verify() {
    write_lines(300);
    run({.input = {.document_rule = DocumentRule::kLine}, .valid_fraction = 0.2, .shard_tokens = 500});
  }
  VerifyReport verify_output() {
    io::Progress progress;
    return verify(directory_ / "out", progress);
  }
  void change_byte(const std::string& name, size_t offset) {
    std::string bytes = read(directory_ / "out/" + name);
    bytes[offset] = static_cast<char>(bytes[offset] ^ 4);
    write(directory_ / "out/" + name, bytes);
  }
};

TEST_F(Verify, NamesEveryDamagedShard) {
  const int64_t shards = verify_output().shards;
  change_byte("train-00001.rfs", 300);
  change_byte("valid-00000.rfs", 0);
  std::filesystem::remove(directory_ / "out/train-00003.rfs");
  const VerifyReport report = verify_output();
  ASSERT_EQ(report.damaged.size(), 3u);
  EXPECT_EQ(report.shards, shards - 3);
  EXPECT_EQ(report.damaged[0].file, "train-00001.rfs");
  expect_has(report.damaged[0].error, "train-00001.rfs: the checksum must be");
  EXPECT_EQ(report.damaged[1].file, "train-00003.rfs");
  expect_has(report.damaged[1].error, "train-00003.rfs");
  EXPECT_EQ(report.damaged[2].file, "valid-00000.rfs");
  expect_has(report.damaged[2].error, "must begin with RFSHARD1");
}

TEST_F(Verify, ShardsThatAreNotTheirs) {
  std::filesystem::copy(directory_ / "out/train-00000.rfs", directory_ / "out/train-00001.rfs",
                        std::filesystem::copy_options::overwrite_existing);
  const VerifyReport counts = verify_output();
  ASSERT_EQ(counts.damaged.size(), 1u);
  EXPECT_EQ(counts.damaged[0].file, "data.json");
  expect_has(counts.damaged[0].error, "out: train: the shards must hold");
  ShardWriter writer(directory_ / "out/train-00000.rfs", 900, make_vocabulary(900).hash());
  add_document(writer, {1}, {1});
  writer.finish();
  const VerifyReport vocabulary = verify_output();
  ASSERT_EQ(vocabulary.damaged.size(), 1u);
  EXPECT_EQ(vocabulary.damaged[0].file, "train-00000.rfs");
  expect_has(vocabulary.damaged[0].error, "must have the vocabulary of data.json");
}

}  // namespace
}  // namespace rf::data
