// Parts of an input, merged: the bytes must be those of a run over the whole.
#include <nlohmann/json.hpp>

#include "fixtures.h"

namespace rf::data {
namespace {

PrepareReport merge_silently(const std::vector<std::string>& inputs, const std::string& output) {
  io::Progress progress;
  return merge({.inputs = inputs, .output_dir = output}, progress);
}

class Merge : public Prepare {
 protected:
  // Files of different sizes; some have no document, some documents no token (\x01 is none).
  void write_files(int files) {
    for (int file = 0; file < files; ++file) {
      std::string text = file % 4 == 2 ? " \n\n" : "";
      for (int line = 0; file % 4 != 2 && line < 1 + file * 37 % 90; ++line) {
        text += line % 11 == 3 ? "\x01\n" : fmt::format("w{} w{}x{} zzz\n", line, file, line % 7);
        for (int word = 0; word < line % 5; ++word) text.insert(text.size() - 1, fmt::format(" w{}", word));
      }
      write(directory_ / fmt::format("text/{:03}.txt", file), text);
    }
  }
  PrepareOptions options() const { return {.input = {.document_rule = DocumentRule::kLine}, .shard_tokens = 500}; }
  // The parts, the last one first.
  std::vector<std::string> make_parts(PrepareOptions given, int64_t parts) {
    std::vector<std::string> made;
    for (int64_t number = parts; number >= 1; --number) {
      made.push_back(directory_ / fmt::format("part-{}-of-{}", number, parts));
      given.part = {.number = number, .parts = parts};
      given.output_dir = made.back();
      run(given);
    }
    return made;
  }
  // Makes the whole, and parts and their sum, which must be the same files; the reports too.
  void expect_same(PrepareOptions given, int64_t parts) {
    given.output_dir = directory_ / "whole";
    const PrepareReport want = run(given);
    const PrepareReport got = merge_silently(make_parts(given, parts), directory_ / "merged");
    EXPECT_EQ(contents(directory_ / "merged"), contents(directory_ / "whole"));
    EXPECT_EQ(std::tie(got.documents, got.train_tokens, got.valid_tokens, got.test_tokens, got.unknown_tokens),
              std::tie(want.documents, want.train_tokens, want.valid_tokens, want.test_tokens, want.unknown_tokens));
    EXPECT_EQ(std::tie(got.replaced_bytes, got.skipped_records, got.input_bytes),
              std::tie(want.replaced_bytes, want.skipped_records, want.input_bytes));
  }
  std::string merge_error(const std::vector<std::string>& inputs) {
    return error_of([&] { merge_silently(inputs, directory_ / "merged"); });
  }
};

TEST_F(Merge, AnyNumberOfPartsGivesTheWhole) {
  write_files(13);
  for (const int64_t parts : {1, 4, 13}) expect_same(options(), parts);
  EXPECT_GT(contents(directory_ / "whole").size(), 6u);  // several shards
}

TEST_F(Merge, EveryHeldOutFraction) {
  write_files(9);
  for (const auto& [fraction, seed] : {std::pair(0.0, 1), {1e-9, 2}, {0.3, 3}, {1 - 1e-9, 4}}) {
    PrepareOptions given = options();
    given.valid_fraction = fraction;
    given.seed = static_cast<uint64_t>(seed);
    expect_same(given, 3);
  }
}

TEST_F(Merge, SplitsWithInputsOfTheirOwn) {
  write_files(6);
  for (int i = 0; i < 3; ++i) write(directory_ / fmt::format("valid/{}.txt", i), std::string("w1 w2\nw3\n", i * 3));
  write(directory_ / "test.txt", "w4 \xFF w5");
  PrepareOptions given = options();
  given.valid_inputs = {directory_ / "valid"};
  given.test_inputs = {directory_ / "test.txt"};
  expect_same(given, 5);
  const Split test(directory_ / "merged", "test", "");
  EXPECT_EQ(test.tokens(), 2);
}

// Longer than a document that waits for its split, and than the pieces in which tokens are copied; and of just a piece.
TEST_F(Merge, LongDocuments) {
  std::string text, piece;
  while (text.size() < 9'000'000) text += "w1 w2x3 ";
  for (int token = 0; token < 1 << 14; ++token) piece += "w3 ";
  write(directory_ / "text/a.txt", "w7");
  write(directory_ / "text/aa.txt", piece);
  write(directory_ / "text/b.txt", text);
  write(directory_ / "text/c.txt", text.substr(0, 900'000));
  PrepareOptions given = options();
  given.input.document_rule = DocumentRule::kFile;
  expect_same(given, 3);
}

TEST_F(Merge, RecordsThatAreSkipped) {
  write(directory_ / "text/a.jsonl", "{\"text\": \"w1\"}\n{\n");
  write(directory_ / "text/b.jsonl", "{\"text\": \"w2 w3\"}\n{}\n");
  PrepareOptions given = options();
  given.input.bad_records = BadRecords::kSkip;
  expect_same(given, 2);
}

TEST_F(Merge, PartsThatDoNotBelongTogether) {
  write_files(6);
  const std::vector<std::string> parts = make_parts(options(), 3);  // 3, 2, 1
  expect_has(merge_error({parts[1], parts[2]}), "got none with number 3");
  std::filesystem::copy(parts[1], directory_ / "again");
  expect_has(merge_error({parts[0], parts[1], parts[2], directory_ / "again"}),
             "[merge] each part must be given once, got part 2 of 3 in " + parts[1] + " and " + (directory_ / "again"));
  expect_has(merge_error({}), "got none");
  expect_has(merge_error({directory_ / "text"}), "text must be a directory made by prepare");
  run({});
  expect_has(merge_error({parts[0], parts[1], parts[2], directory_ / "out"}), "out, which is whole");
  EXPECT_FALSE(std::filesystem::exists(directory_ / "merged"));
  expect_has(error_of([&] { merge_silently(parts, parts[1]); }), "must not replace the input");
}

TEST_F(Merge, PartsOfOtherSettings) {
  write_files(6);
  const std::vector<std::string> parts = make_parts(options(), 3);
  write(directory_ / "test.txt", "w4");
  struct Case {
    const char* what;
    void (*change)(PrepareOptions&, const Directory&);
  };
  const Case cases[] = {
      {"same number of parts, got 3 in", [](auto& given, auto&) { given.part->parts = 4; }},
      {"same --valid-fraction, got 0.05 in", [](auto& given, auto&) { given.valid_fraction = 0.5; }},
      {"same --seed, got 1 in", [](auto& given, auto&) { given.seed = 2; }},
      {"same --shard-tokens, got 500 in", [](auto& given, auto&) { given.shard_tokens = 501; }},
      {"same --documents, got \"line\" in",
       [](auto& given, auto&) { given.input.document_rule = DocumentRule::kFile; }},
      {"same --format, got \"auto\" in", [](auto& given, auto&) { given.input.format = Format::kText; }},
      {"same --no-quotes, got \"read\" in", [](auto& given, auto&) { given.input.quotes = Quotes::kText; }},
      {"same --skip-bad-records", [](auto& given, auto&) { given.input.bad_records = BadRecords::kSkip; }},
      {"same --input, got [", [](auto& given, auto& at) { given.input.inputs = {at / "text/*.txt"}; }},
      {"same --valid-input and --test", [](auto& given, auto& at) { given.test_inputs = {at / "test.txt"}; }},
      {"same vocabulary, got", [](auto& given, auto& at) { given.model_dir = make_model(at, 900); }},
      {"same tokenizer, got others in",
       [](auto& given, auto& at) { given.model_dir = make_model(at, 1000, {.letter_case = text::Case::kKeep}); }},
      {"same input files (a hash of their names and sizes), got",
       [](auto&, auto& at) { write(at / "text/005.txt", read(at / "text/005.txt") + "w0\n"); }},
      {"same --field, got \"text\" in",
       [](auto& given, auto& at) {
         write(at / "text/006.jsonl", "{\"body\":\"w1\"}");
         given.input.field = "body";
       }},
  };
  for (const Case& c : cases) {
    PrepareOptions given = options();
    given.part = {.number = 2, .parts = 3};
    given.model_dir = make_model(directory_);
    given.output_dir = directory_ / "other";
    c.change(given, directory_);
    run(given);
    const std::string other = directory_ / "other";
    expect_parts(merge_error({parts[0], other, parts[2]}), {c.what, parts[0], other});
  }
}

TEST_F(Merge, DamagedParts) {
  write_files(6);
  const std::vector<std::string> parts = make_parts(options(), 3);
  const std::string shard = parts[1] + "/train-00000.rfs", good = read(shard);
  change_byte(shard, 130);
  expect_has(merge_error(parts), shard + ": the checksum must be");
  EXPECT_FALSE(std::filesystem::exists(directory_ / "merged"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "merged.preparing"));
  std::filesystem::remove(shard);
  expect_has(merge_error(parts), shard);
  write(shard, good);
  merge_silently(parts, directory_ / "merged");
}

TEST_F(Merge, NoTokenInAnyPart) {
  for (const char* name : {"text/a.txt", "text/b.txt"}) write(directory_ / name, " \n");
  expect_has(merge_error(make_parts(options(), 2)), "a document with a token for the split train, got none");
}

TEST_F(Merge, APartIsNoDataDirectory) {
  write_files(3);
  const std::vector<std::string> parts = make_parts(options(), 3);
  const std::string message = error_of([&] { Split(parts[1], "train", ""); });
  expect_has(message, "must be a whole data directory, got part 2 of 3 (roformer merge");
  io::Progress progress;
  EXPECT_TRUE(verify(parts[1], progress).damaged.empty());
}

TEST_F(Merge, PartsThatCannotBe) {
  write_files(3);
  PrepareOptions given = options();
  given.part = {.number = 1, .parts = 4};
  expect_has(run_error(given), "[prepare] there must be a file for each part, got 3 files for 4 parts");
  for (const InputPart part : {InputPart{0, 3}, InputPart{4, 3}, InputPart{1, 0}}) {
    given.part = part;
    expect_has(run_error(given), fmt::format("got {} of {}", part.number, part.parts));
  }
  given.part = {.number = 1, .parts = 1};
  given.input.inputs = {"-"};
  expect_has(run_error(given), "the inputs of a part must be files, which every machine sees, got -");
  EXPECT_FALSE(std::filesystem::exists(directory_ / "out"));
}

TEST_F(Merge, PartsHaveFilesOfAboutTheSameSize) {
  using Sizes = std::vector<size_t>;
  for (const Sizes& sizes : {Sizes{100, 1, 1, 1}, {1, 1, 1, 100}, {1, 50, 1, 50, 1, 50, 1}, {30, 10, 40, 10, 50}}) {
    std::filesystem::remove_all(directory_ / "text");
    int64_t files = 0, bytes = 0;
    for (const size_t size : sizes) {
      write(directory_ / fmt::format("text/{}.txt", files++), std::string(100 * size, 'w'));
      bytes += static_cast<int64_t>(100 * size);
    }
    for (const int64_t parts : {int64_t{2}, files}) {
      int64_t files_of_parts = 0;
      for (int64_t number = 1; number <= parts; ++number) {
        PrepareOptions given = options();
        given.part = {.number = number, .parts = parts};
        EXPECT_LE(run(given).input_bytes, bytes / parts + 100 * static_cast<int64_t>(std::ranges::max(sizes)));
        const auto manifest = nlohmann::json::parse(read(directory_ / "out/data.json"));
        EXPECT_GE(manifest["input_files"], 1);
        files_of_parts += manifest["input_files"].get<int64_t>();
      }
      EXPECT_EQ(files_of_parts, files);
    }
  }
}

}  // namespace
}  // namespace rf::data
