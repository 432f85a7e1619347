#include "rf/data/prepare.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "fixtures.h"
#include "rf/text/tokenizer.h"
#include "staging_directory.h"

namespace rf::data {
namespace {

TEST_F(Prepare, TokensAndWordsOfASmallText) {
  write(directory_ / "text/a.txt", "W0x0 zzz\xFF [MASK]\r\n\r\nw1 w1x1\n");
  const PrepareReport report = run({.input = {.document_rule = DocumentRule::kLine}, .valid_fraction = 0});
  EXPECT_EQ(std::tie(report.documents, report.train_tokens, report.valid_tokens), std::tuple(2, 7, 0));
  EXPECT_EQ(std::tie(report.unknown_tokens, report.replaced_bytes, report.input_bytes), std::tuple(1, 1, 28));
  EXPECT_EQ(text::Tokenizer::load(directory_ / "out").vocabulary().hash(), make_vocabulary(1000).hash());
  EXPECT_FALSE(std::filesystem::exists(directory_ / "out.preparing"));
  // w0 is 5 and ##x0 is 6, w1 7 and ##x1 8, by the order of the vocabulary.
  EXPECT_EQ(tokens("train"), (std::vector<int32_t>{5, 6, 1, 4, 7, 7, 8}));
  const Split split(directory_ / "out", "train", "");
  std::vector<int32_t> ids(4);
  std::vector<uint8_t> starts(4);
  split.copy(0, 0, 4, ids.data(), starts.data());
  EXPECT_EQ(starts, (std::vector<uint8_t>{1, 0, 1, 1}));
  split.copy(1, 1, 2, ids.data(), starts.data());
  for (const int64_t begin : {0, 3}) split.copy(1, begin, 0, ids.data(), starts.data());  // no tokens
  EXPECT_EQ(ids[1], 8);
  expect_has(error_of([&] { split.copy(1, 2, 2, ids.data(), starts.data()); }), "got 2 from 2");
  expect_has(error_of([&] { split.copy(1, -1, 1, ids.data(), starts.data()); }), "got 1 from -1");
  expect_has(error_of([&] { split.copy(1, 0, -1, ids.data(), starts.data()); }), "got -1 from 0");
  expect_has(error_of([&] { split.document_tokens(2); }), "got 2");
  std::vector<int64_t> lengths(2);
  expect_has(error_of([&] { split.document_lengths(1, lengths); }), "got 2 from 1");
  expect_has(error_of([&] { split.document_lengths(-1, lengths); }), "got -1");
  EXPECT_EQ(Split(directory_ / "out", "valid", "").documents(), 0);
}

// Held-out and test documents from files of their own: none is drawn, and each split has its own alone.
TEST_F(Prepare, SplitsWithInputsOfTheirOwn) {
  write_lines(200);
  write(directory_ / "valid/a.txt", "w1 w2\nw3\n");
  write(directory_ / "test.txt", "w4");
  const PrepareReport report = run({.input = {.document_rule = DocumentRule::kLine},
                                    .valid_inputs = {directory_ / "valid"},
                                    .test_inputs = {directory_ / "test.txt"}});
  EXPECT_EQ(std::tie(report.documents, report.valid_tokens, report.test_tokens), std::tuple(203, 3, 1));
  EXPECT_EQ(report.input_bytes, std::ssize(read(directory_ / "text/a.txt") + read(directory_ / "valid/a.txt")) + 2);
  EXPECT_EQ(tokens("valid"), (std::vector<int32_t>{7, 9, 11}));
  EXPECT_EQ(tokens("test"), (std::vector<int32_t>{13}));
  EXPECT_EQ(Split(directory_ / "out", "train", "").documents(), 200);
  const nlohmann::json manifest = nlohmann::json::parse(read(directory_ / "out/data.json"));
  EXPECT_EQ(manifest["split_inputs"],
            (nlohmann::json{{"test", {directory_ / "test.txt"}}, {"valid", {directory_ / "valid"}}}));
  EXPECT_EQ(manifest["valid_fraction"], 0);
  EXPECT_EQ(manifest["input_files"], 3);
}

TEST_F(Prepare, SplitsThatCannotBe) {
  write_lines(3);
  expect_has(run_error({.valid_inputs = {directory_ / "text/a.txt"}}), "/text/a.txt for train and valid");
  write(directory_ / "empty.txt", " \n");
  expect_has(run_error({.test_inputs = {directory_ / "empty.txt"}}), "got none in 1 files (2 bytes), first");
  expect_has(run_error({.test_inputs = {directory_ / "none.txt"}}), "none.txt");
  EXPECT_FALSE(std::filesystem::exists(directory_ / "out"));
}

// Characters as tokens, words as the dictionary has them; offsets count in code points, also past invalid bytes.
TEST_F(Prepare, WordsOfJieba) {
  const std::string model = directory_ / "characters";
  std::filesystem::create_directories(model);
  text::Tokenizer(text::Vocabulary({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "今", "天", "气", "好", "ab", "##c"}),
                  {})
      .save(model);
  write(model + "/dict.txt", "今天 100\n天气 100\n好 10\n");
  write(directory_ / "text/a.txt", "今天天气好 abc\n\xFF今天[MASK]气");
  const PrepareOptions options{.model_dir = model, .valid_fraction = 0};
  const auto words = [&](WordRule rule) {
    PrepareOptions changed = options;
    changed.words = rule;
    run(changed);
    const TestDocument document = read_document(Split(directory_ / "out", "train", ""), 0);
    EXPECT_EQ(document.ids, (std::vector<int32_t>{5, 6, 6, 7, 8, 9, 10, 5, 6, 4, 7}));
    return document.starts_word;
  };
  EXPECT_EQ(words(WordRule::kTokenizer), (std::vector<uint8_t>{1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1}));
  EXPECT_EQ(words(WordRule::kJieba), (std::vector<uint8_t>{1, 0, 1, 0, 1, 1, 0, 1, 0, 1, 1}));
  EXPECT_EQ(nlohmann::json::parse(read(directory_ / "out/data.json"))["words"], "jieba");
}

TEST_F(Prepare, NamesThatAreNotUtf8) {
  write(directory_ / "text/\xFF.txt", "w0 w1");
  write(directory_ / "text/none.jsonl", "");
  run({.input = {.inputs = {directory_ / "text/\xFF.txt", directory_ / "text/none.jsonl"}, .field = "\xFE"}});
  const nlohmann::json manifest = nlohmann::json::parse(read(directory_ / "out/data.json"));
  EXPECT_EQ(manifest["inputs"][0], directory_ / "text/\uFFFD.txt");
  EXPECT_EQ(manifest["field"], "\uFFFD");
}

TEST_F(Prepare, ThreadsDoNotShow) {
  write_lines(20000);
  write(directory_ / "text/b.txt", std::string(100000, 'w') + "\n\nw0 w1");
  PrepareOptions options{.input = {.document_rule = DocumentRule::kLine}, .shard_tokens = 30000};
  std::vector<std::map<std::string, std::string>> made;
  for (const int threads : {1, 2, 5}) {
    options.threads = threads;
    options.output_dir = directory_ / fmt::format("out{}", threads);
    run(options);
    made.push_back(contents(options.output_dir));
  }
  EXPECT_GT(made[0].size(), 8u);  // several shards
  EXPECT_EQ(made[0], made[1]);
  EXPECT_EQ(made[0], made[2]);
}

TEST_F(Prepare, ValidFractionAndSeed) {
  write_lines(4000);
  run({.input = {.document_rule = DocumentRule::kLine}, .valid_fraction = 0.25, .seed = 3});
  const auto train = tokens("train"), valid = tokens("valid");
  const int64_t held_out = Split(directory_ / "out", "valid", "").documents();
  EXPECT_EQ(held_out + Split(directory_ / "out", "train", "").documents(), 4000);
  EXPECT_GT(held_out, 850);
  EXPECT_LT(held_out, 1150);
  run({.input = {.document_rule = DocumentRule::kLine}, .valid_fraction = 0.25, .seed = 4});
  EXPECT_NE(valid, tokens("valid"));
  EXPECT_EQ(train.size() + valid.size(), tokens("train").size() + tokens("valid").size());
}

// A document whose draw equals the fraction stays in the training split.
TEST_F(Prepare, ADrawAtTheFraction) {
  std::string text;
  std::vector<std::pair<double, int32_t>> documents;  // draw, token
  for (int32_t i = 0; i < 8; ++i) {
    text += fmt::format("w{}\n", i);
    documents.emplace_back(draw(1, Stream::kSplit, 0, 0, i)[0] * 0x1p-32, 5 + 2 * i);
  }
  write(directory_ / "text/a.txt", text);
  std::sort(documents.begin(), documents.end());
  run({.input = {.document_rule = DocumentRule::kLine}, .valid_fraction = documents[3].first, .seed = 1});
  std::vector<int32_t> expected{documents[0].second, documents[1].second, documents[2].second};
  std::vector<int32_t> held_out = tokens("valid");
  std::sort(expected.begin(), expected.end());
  std::sort(held_out.begin(), held_out.end());
  EXPECT_EQ(held_out, expected);
}

TEST_F(Prepare, EachSplitGetsADocumentAndTrainingASingleOne) {
  for (const double fraction : {0.0, 1e-9, 0.05, 1 - 1e-9}) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      write(directory_ / "text/a.txt", " \n\x01\nw0\n\x01\nw1 w1\n");  // \x01 is a document without a token
      PrepareOptions options{.input = {.document_rule = DocumentRule::kLine}, .valid_fraction = fraction, .seed = seed};
      const PrepareReport report = run(options);
      EXPECT_EQ(report.documents, 2);
      EXPECT_EQ(report.train_tokens + report.valid_tokens, 3);
      EXPECT_EQ(report.train_tokens > 0 && report.valid_tokens > 0, fraction > 0);
      options.input.document_rule = DocumentRule::kFile;
      EXPECT_EQ(run(options).train_tokens, 3);
    }
  }
}

TEST_F(Prepare, AnotherVocabularyIsNamed) {
  write_lines(10);
  run({.input = {.document_rule = DocumentRule::kLine}});
  const std::string ours = make_vocabulary(1000).hash(), theirs = make_vocabulary(900).hash();
  expect_parts(error_of([&] { Split(directory_ / "out", "train", theirs); }), {ours, theirs});
  // A shard of another vocabulary under a name of ours.
  ShardWriter writer(directory_ / "out/train-00000.rfs", 900, theirs);
  add_document(writer, {1}, {1});
  writer.finish();
  expect_parts(error_of([&] { Split(directory_ / "out", "train", ours); }), {ours, theirs});
}

TEST_F(Prepare, DamagedDirectories) {
  write_lines(10);
  const std::string out = directory_ / "out";
  const auto split_error = [&] { return error_of([&] { Split(out, "train", ""); }); };
  expect_has(split_error(), out);  // nothing there
  run({.input = {.document_rule = DocumentRule::kLine}});
  expect_has(error_of([&] { Split(out, "test", ""); }), "\"test\"");

  const nlohmann::json good = nlohmann::json::parse(read(out + "/data.json"));
  const std::tuple<const char*, nlohmann::json, const char*> cases[] = {
      {"/version", 1, "got \"roformer-data\" version 1"},
      {"/format", "x", "got \"x\""},
      {"/vocab_size", -1, "got -1"},
      {"/extra", 1, "every key must be known, got \"extra\""},
      {"/splits", 3, "splits must be an object, got 3"},
      {"/splits/train/shards", "a", "got string"},
      {"/splits/train/shards/0", "../a.rfs", "../a.rfs"},
      {"/splits/train/shards/0", "missing.rfs", "missing.rfs"},
      {"/splits/train/token_counts", "a.rfs", "must be a file name that ends in .npy"},
      {"/tokenizer_files", "a", "list of texts, got \"a\""},
      {"/tokenizer_files/0", "../a.txt", "got \"../a.txt\""},
      {"/splits/train/tokens", 7, "must hold 7 tokens"},
      {"/vocab_hash", 7, "vocab_hash must be a string, got 7"},
      {"/seed", "7", "seed"},
      {"/valid_fraction", "7", "valid_fraction"},
  };
  for (const auto& [pointer, value, named] : cases) {
    nlohmann::json bad = good;
    bad[nlohmann::json::json_pointer(pointer)] = value;
    write(out + "/data.json", bad.dump());
    expect_parts(split_error(), {out, named});
  }
  write(out + "/data.json", "{");
  expect_has(split_error(), "data.json");
  write(out + "/data.json", good.dump());
  EXPECT_EQ(Split(out, "train", "").tokens(), good["splits"]["train"]["tokens"]);

  const std::string shard = out + "/train-00000.rfs";
  write(shard, read(shard).substr(0, 200));
  expect_has(split_error(), "train-00000.rfs");
}

TEST_F(Prepare, BadInputs) {
  write_lines(10);
  expect_has(run_error({.input = {.inputs = {directory_ / "missing"}}}), "missing");
  expect_has(run_error({.model_dir = directory_ / "nomodel"}), "nomodel");
  expect_has(run_error({.valid_fraction = 1}), "got 1");
  expect_has(run_error({.shard_tokens = 0}), "got 0");
  expect_has(run_error({.threads = -1}), "got -1");
  expect_has(run_error({.output_dir = directory_ / "text/a.txt"}), "a.txt");
  expect_has(run_error({.output_dir = "/dev/null/out"}), "/dev/null/out");
  expect_has(error_of([&] {
               io::Progress progress;
               prepare({.input = {.inputs = {directory_ / "text"}}, .model_dir = directory_ / "model"}, progress);
             }),
             "no name");
  std::filesystem::create_symlink("nowhere", directory_ / "dangling");
  expect_has(run_error({.output_dir = directory_ / "dangling"}), "must be a directory");
  std::filesystem::create_directory_symlink(directory_ / "text", directory_ / "link.preparing");
  expect_has(run_error({.output_dir = directory_ / "link"}), "except the command's own outputs");
  EXPECT_TRUE(std::filesystem::exists(directory_ / "text/a.txt"));
  write(directory_ / "blank/a.txt", " \n");
  write(directory_ / "blank/b.txt", "");
  expect_has(run_error({.input = {.inputs = {directory_ / "blank"}}}), "none in 2 files");
  EXPECT_FALSE(std::filesystem::exists(directory_ / "out"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "out.preparing"));
}

TEST_F(Prepare, ReplacesOnlyItsOwn) {
  write_lines(10);
  write(directory_ / "out/precious.txt", "text");
  expect_has(run_error({}), directory_ / "out");
  write(directory_ / "out/data.json", "{}");
  expect_has(run_error({}), "data.json");
  EXPECT_EQ(read(directory_ / "out/precious.txt"), "text");

  std::filesystem::remove_all(directory_ / "out");
  std::filesystem::create_directories(directory_ / "out");  // empty
  run({.input = {.document_rule = DocumentRule::kLine}, .shard_tokens = 20});
  const auto first = contents(directory_ / "out");
  write(directory_ / "out.preparing/.roformer-prepare", "");
  write(directory_ / "out.preparing/left", "over");
  EXPECT_NE(run_error({.model_dir = directory_ / "nomodel"}), "");
  EXPECT_EQ(contents(directory_ / "out"), first);  // a failed run leaves what was there
  run({.output_dir = directory_ / "out/"});
  EXPECT_EQ(std::filesystem::exists(directory_ / "out/train-00001.rfs"), false);
  EXPECT_EQ(Split(directory_ / "out", "train", "").documents(), 1);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_.path()), {}), 3);  // text, model, out
}

// Files and directories that somebody has put beside what prepare wrote.
TEST_F(Prepare, RefusesToReplaceWhatItDidNotMake) {
  write_lines(10);
  for (const char* each : {"out.old", "out.preparing.old"}) write(directory_ / each + "/precious.txt", "text");
  run({});
  const auto first = contents(directory_ / "out");
  for (const std::string precious : {"notes.txt", "run/model.safetensors", "more.rfs", "dict.txt/deep.txt"}) {
    write(directory_ / "out/" + precious, "text");
    const std::string top = precious.substr(0, precious.find('/'));
    expect_has(run_error({.seed = 5}), directory_ / "out/" + top);
    EXPECT_EQ(read(directory_ / "out/" + precious), "text");
    std::filesystem::remove_all(directory_ / "out/" + top);
    EXPECT_EQ(contents(directory_ / "out"), first);
  }
  EXPECT_FALSE(std::filesystem::exists(directory_ / "out.preparing"));
  run({});  // replaces
  write(directory_ / "out.preparing/precious.txt", "text");
  expect_parts(run_error({}), {"out.preparing", "precious.txt"});
  EXPECT_EQ(contents(directory_ / "out"), first);
  for (const char* each : {"out.old", "out.preparing.old", "out.preparing"}) {
    EXPECT_EQ(read(directory_ / each + "/precious.txt"), "text");
  }
}

// The result of another run, and an output that holds one.
class Publish : public Prepare {
 protected:
  // Replaces the output by a directory of two files.
  void publish(ExchangeNames exchange) {
    StagingDirectory staging(directory_ / "out");
    write(staging.directory() + "/data.json", read(directory_ / "out/data.json"));
    write(staging.directory() + "/train-00000.rfs", "new");
    staging.publish(exchange);
  }
  std::string shard() { return read(directory_ / "out/train-00000.rfs"); }
  int64_t entries() { return std::distance(std::filesystem::directory_iterator(directory_.path()), {}); }
};

using Path = std::filesystem::path;

TEST_F(Publish, NamesAreExchangedOrTheOldOneIsMovedAside) {
  write_lines(10);
  const ExchangeNames unknown = [](const Path&, const Path&) {
    return std::make_error_code(std::errc::invalid_argument);
  };
  for (const ExchangeNames exchange : {&exchange_names, unknown}) {
    run({});
    publish(exchange);
    EXPECT_EQ(shard(), "new");
    EXPECT_EQ(entries(), 3);  // text, model, out
    std::filesystem::remove_all(directory_ / "out");
  }
  run({});
  const std::string old = shard();
  write(directory_ / "out.preparing.old/precious.txt", "text");
  expect_has(error_of([&] { publish(unknown); }), "out.preparing.old");
  EXPECT_EQ(shard(), old);
  EXPECT_EQ(read(directory_ / "out.preparing.old/precious.txt"), "text");
}

TEST_F(Publish, AFailureKeepsTheOldDirectory) {
  write_lines(10);
  run({});
  const std::string old = shard();
  const ExchangeNames failing = [](const Path&, const Path&) { return std::make_error_code(std::errc::io_error); };
  expect_has(error_of([&] { publish(failing); }), "must be replaceable");
  EXPECT_EQ(shard(), old);
  EXPECT_EQ(entries(), 3);
}

TEST_F(Prepare, OneProcessAtATime) {
  write_lines(10);
  write(directory_ / "out.preparing/.roformer-prepare", "");
  write(directory_ / "out.preparing/train-00000.rfs", "half");
  const int other = ::open((directory_ / "out.preparing").c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(::flock(other, LOCK_EX), 0);
  expect_has(run_error({}), "which another one holds");
  EXPECT_EQ(read(directory_ / "out.preparing/train-00000.rfs"), "half");
  ::close(other);
  run({});
}

}  // namespace
}  // namespace rf::data
