// What prepare() replaces and removes, and what it leaves alone: only files that it wrote go. What verify() finds.
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>

#include "fixtures.h"
#include "rf/text/segmenter.h"
#include "rf/text/tokenizer.h"

namespace rf::data {
namespace {

class PrepareReplace : public Prepare {
 protected:
  // Directories of three tokenizers: word pieces, bytes, and words that a dictionary segments.
  std::vector<std::string> models() {
    for (const char* name : {"bytes", "words"}) std::filesystem::create_directories(directory_ / name);
    text::byte_tokenizer().save(directory_ / "bytes");
    write(directory_ / "words.txt", "w0w1 10\n");
    text::TokenizerOptions options;
    options.pipeline = text::Pipeline::kRoformer;
    options.dictionary = text::Dictionary::load(directory_ / "words.txt", {}, {""});
    text::Tokenizer(make_vocabulary(1000), options).save(directory_ / "words");
    return {make_model(directory_), directory_ / "bytes", directory_ / "words"};
  }
  // Files of the user's own that have a name of a tokenizer's.
  void expect_refused(const std::string& model) {
    const auto first = contents(directory_ / "out");
    for (const std::string_view name : text::kTokenizerFiles) {
      if (first.contains(std::string(name))) continue;
      const std::string precious = fmt::format("{}/{}", directory_ / "out", name);
      write(precious, "precious");
      expect_has(run_error({.model_dir = model}), directory_ / "out");
      EXPECT_EQ(std::filesystem::exists(precious) ? read(precious) : "gone", "precious") << precious;
      std::filesystem::remove(precious);
    }
    EXPECT_EQ(contents(directory_ / "out"), first);
  }
};

TEST_F(PrepareReplace, NoTokenizerFilesThatItDidNotWrite) {
  write_lines(10);
  for (const std::string& model : models()) {
    std::filesystem::remove_all(directory_ / "out");
    run({.model_dir = model});
    const auto whole = contents(directory_ / "out");
    expect_refused(model);
    run({.model_dir = model});
    EXPECT_EQ(contents(directory_ / "out"), whole);
  }
}

// A kill may come before the mark has its name, or later.
TEST_F(PrepareReplace, WhatAKilledProcessLeft) {
  write_lines(10);
  run({});
  const auto whole = contents(directory_ / "out");
  const std::vector<std::vector<std::string>> leftovers = {
      {},
      {".roformer-prepare.tmp.7.0"},
      {".roformer-prepare.tmp.7.0", "data.json", "train-00000.rfs"},
      {".roformer-prepare", "data.json"},  // one that cannot be read
  };
  for (const std::vector<std::string>& names : leftovers) {
    std::filesystem::create_directories(directory_ / "out.preparing");
    for (const std::string& name : names) write(directory_ / "out.preparing/" + name, "");
    run({});
    EXPECT_EQ(contents(directory_ / "out"), whole);
    EXPECT_FALSE(std::filesystem::exists(directory_ / "out.preparing"));
  }
}

// So that a directory that is half removed is still known as ours. The system reports the order.
TEST_F(PrepareReplace, TheMarkGoesLast) {
  write_lines(100);
  write(directory_ / "bad.jsonl", "not JSON");
  write(directory_ / "out.preparing/.roformer-prepare", "");
  const int events = ::inotify_init1(IN_NONBLOCK);
  ASSERT_GE(::inotify_add_watch(events, (directory_ / "out.preparing").c_str(), IN_DELETE), 0);
  run_error({.input = {.document_rule = DocumentRule::kLine},
             .valid_inputs = {directory_ / "bad.jsonl"},
             .shard_tokens = 20});
  std::vector<std::string> removed;
  alignas(inotify_event) std::array<char, 65536> bytes;
  const ssize_t count = ::read(events, bytes.data(), bytes.size());
  for (ssize_t at = 0; at < count;) {
    const auto* event = reinterpret_cast<const inotify_event*>(bytes.data() + at);
    if ((event->mask & IN_DELETE) != 0) removed.emplace_back(event->name);
    at += ssize_t(sizeof(inotify_event)) + event->len;
  }
  ::close(events);
  ASSERT_GT(removed.size(), 10u);  // shards
  EXPECT_EQ(removed.back(), ".roformer-prepare");
  EXPECT_FALSE(std::filesystem::exists(directory_ / "out.preparing"));
}

// ---- verify(), and data directories that are damaged after they were made

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
};

TEST_F(Verify, NamesEveryDamagedShard) {
  const int64_t shards = verify_output().shards;
  change_byte(directory_ / "out/train-00001.rfs", 300);
  change_byte(directory_ / "out/valid-00000.rfs", 0);
  std::filesystem::remove(directory_ / "out/train-00003.rfs");
  const VerifyReport report = verify_output();
  ASSERT_EQ(report.damaged.size(), 3u);
  EXPECT_EQ(report.shards, shards - 3);
  const std::pair<const char*, const char*> expected[] = {{"train-00001.rfs", "train-00001.rfs: the checksum must be"},
                                                          {"train-00003.rfs", "train-00003.rfs"},
                                                          {"valid-00000.rfs", "must begin with RFSHARD1"}};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(report.damaged[i].file, expected[i].first);
    expect_has(report.damaged[i].error, expected[i].second);
  }
}

TEST_F(Verify, EndsTheLineOfATerminal) {
  io::Progress progress(io::Progress::Show::kTerminal);
  ::testing::internal::CaptureStderr();
  verify(directory_ / "out", progress);
  EXPECT_TRUE(::testing::internal::GetCapturedStderr().ends_with('\n'));
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
