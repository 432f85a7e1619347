// Texts, one for each line or record, all of them and in order. How the formats are read is reader_test.cpp's.
#include "rf/data/reader.h"

#include "fixtures.h"

namespace rf::data {
namespace {

using Texts = std::vector<std::string>;

struct Read {
  Texts texts;
  std::vector<int64_t> lines;
  Texts problems;
};

Read read_texts(const std::string& name, const std::string& bytes, ReadOptions options = {}) {
  const Directory directory;
  write(directory / name, bytes);
  options.inputs = {directory / name};
  Read read;
  TextReader reader(options);
  reader.read([&](const SourceText& text) {
    EXPECT_TRUE(text.source.ends_with(name));
    read.texts.emplace_back(text.text);
    read.lines.push_back(text.line);
    read.problems.emplace_back(text.problem);
  });
  EXPECT_EQ(reader.bytes_read(), std::ssize(bytes));
  return read;
}

TEST(Texts, EveryLineIsOne) {
  EXPECT_EQ(read_texts("a.txt", "a\rb\xff\n").texts, (Texts{"a\rb\xff"}));
  EXPECT_EQ(read_texts("a.txt", "a\n\nb").lines, (std::vector<int64_t>{1, 2, 3}));
  const std::string long_line(3 << 20, 'x');  // of many pieces
  EXPECT_EQ(read_texts("a.txt", "a\n  \n" + long_line + "\nb").texts, (Texts{"a", "  ", long_line, "b"}));
}

TEST(Texts, EveryRecordIsOne) {
  const Read json = read_texts("a.jsonl", "{\"text\":\"x\"}\n\n{\"text\":null}\n{\"text\":\"a\\nb\"}");
  EXPECT_EQ(json.texts, (Texts{"x", "", "a\nb"}));
  EXPECT_EQ(json.lines, (std::vector<int64_t>{1, 3, 4}));
  const Read table = read_texts("a.csv", "id,text\n1,\n2,\"two\nlines\"\n3,three\n");
  EXPECT_EQ(table.texts, (Texts{"", "two\nlines", "three"}));
  EXPECT_EQ(table.lines, (std::vector<int64_t>{2, 3, 5}));
}

TEST(Texts, BadRecordsKeepTheirPlace) {
  const auto message = [](const std::string& name, const std::string& bytes, const ReadOptions& options = {}) {
    return error_of([&] { read_texts(name, bytes, options); });
  };
  expect_has(message("a.jsonl", "{\"text\":\"x\"}\n{\"label\":1}\n"), "a.jsonl line 2");
  expect_has(message("a.csv", "text,b\n1\n"), "a.csv line 2");
  const ReadOptions skip{.bad_records = BadRecords::kSkip};
  expect_has(message("a.data", std::string("a\n\0b", 4), skip), "zero bytes");
  const Read read = read_texts("a.jsonl", "{\"text\":\"x\"}\n{\"label\":1}\n{\"text\":\"y\"}\n", skip);
  EXPECT_EQ(read.texts, (Texts{"x", "", "y"}));
  ASSERT_EQ(read.problems.size(), 3u);
  expect_has(read.problems[1], "field");
  EXPECT_EQ(read.problems[0] + read.problems[2], "");
}

}  // namespace
}  // namespace rf::data
