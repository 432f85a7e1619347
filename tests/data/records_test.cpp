// Records out of JSON lines and tables, with their places, and what is refused. How the formats are read is
// reader_test.cpp's and tests/oracles/test_readers.py's; both read through the same code.
#include "rf/data/records.h"

#include "fixtures.h"

namespace rf::data {
namespace {

std::vector<Record> records_of(const std::string& name, const std::string& bytes, RecordOptions options = {}) {
  const Directory directory;
  write(directory / name, bytes);
  options.inputs = {directory / name};
  std::vector<Record> records;
  RecordReader reader(options);
  reader.read([&](Record& record) { records.push_back(std::move(record)); });
  EXPECT_EQ(reader.bytes_read(), std::ssize(bytes));
  EXPECT_EQ(reader.total_bytes(), std::ssize(bytes));
  return records;
}

std::string record_error(const std::string& name, const std::string& bytes, const RecordOptions& options = {}) {
  return error_of([&] { records_of(name, bytes, options); });
}

TEST(Records, TablesNameTheirColumnsAndLines) {
  const auto records = records_of("a.tsv", "\xEF\xBB\xBFid\ttext\n1\tone\n\n2\t\"two\nlines\"\n3\tthree\n");
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[1].fields, nlohmann::json({{"id", "2"}, {"text", "two\nlines"}}));
  EXPECT_EQ(std::tuple(records[0].line, records[1].line, records[2].line), std::tuple(2, 4, 6));
  EXPECT_TRUE(records[2].place().ends_with("a.tsv line 6"));
  EXPECT_EQ(records_of("a.csv", "a,b\n1,2\n")[0].text("b"), "2");
  const auto plain = records_of("a.tsv", "text\n\"quoted\" text\n", {.quotes = Quotes::kText});
  EXPECT_EQ(plain.at(0).text("text"), "\"quoted\" text");
}

TEST(Records, JsonLinesKeepTheirTypes) {
  const auto records = records_of("a.jsonl", "{\"text\":\"x\",\"label\":1}\n \n{\"text\":true,\"list\":[1,\"a\"]}");
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[1].line, 3);
  EXPECT_EQ(records[0].text("label"), "1");
  EXPECT_EQ(records[0].number("label"), 1.0);
  EXPECT_EQ(records[1].text("text"), "true");
  EXPECT_EQ(records[1].at("list").size(), 2u);
  EXPECT_EQ(records[1].find("label"), nullptr);
}

TEST(Records, FormatsByNameOrByOption) {
  EXPECT_EQ(records_of("a.data", "a\tb\n1\t2\n", {.format = Format::kTsv}).size(), 1u);
  expect_parts(record_error("a.data", "a\n"), {"a.data", "jsonl, csv or tsv", "--format"});
  expect_parts(record_error("a.parquet", "PAR1"), {"jsonl, csv or tsv, got parquet"});
  EXPECT_TRUE(records_of("a.tsv", "").empty());
  EXPECT_TRUE(records_of("a.tsv", "text\tlabel\n").empty());
}

TEST(Records, BadRecordsAreNamedWithFileAndLine) {
  expect_parts(record_error("a.tsv", "a\ta\n1\t2\n"), {"a.tsv line 1", "\"a\" twice"});
  expect_parts(record_error("a.csv", "a\n\"open\n"), {"a.csv line 2", "quotation marks", "--no-quotes"});
  expect_parts(record_error("a.jsonl", "{}\n[1]\n"), {"a.jsonl line 2", "JSON object", "[1]"});
  expect_parts(record_error("a.jsonl", "{}\n{\"a\":}\n"), {"a.jsonl line 2"});
  expect_parts(record_error("a.jsonl", "{\"a\":1,\"a\":2}\n"), {"a.jsonl line 1", "unique"});
}

TEST(Records, LinesOfPlainTextAreRecordsWhereTheirFieldIsNamed) {
  const auto records = records_of("a.txt", "one, two\r\n \n\n\tthree\n\"four\"", {.text_field = "sentence"});
  std::vector<std::string> texts;
  for (const Record& record : records) texts.push_back(record.text("sentence"));
  EXPECT_EQ(texts, (std::vector<std::string>{"one, two", " ", "", "\tthree", "\"four\""}));
  expect_parts(records.at(4).place(), {"a.txt line 5"});
  expect_parts(record_error("a.txt", "one\n"), {"a.txt", "jsonl, csv or tsv", "got text"});
  expect_parts(record_error("a.txt", "one\n\xFF\n", {.text_field = "text"}),
               {"a.txt line 2 must be UTF-8, got \"\\xff\""});
}

TEST(Records, BytesReadFollowTheRecords) {
  std::string bytes;
  for (int i = 0; i < 20000; ++i) bytes += "{\"text\":\"0123456789\"}\n";
  const Directory directory;
  write(directory / "a.jsonl", bytes);
  RecordReader reader({.inputs = {directory / "a.jsonl"}});
  int64_t given = 0;
  const int64_t line = std::ssize(bytes) / 20000;
  reader.read([&](Record&) {
    given += line;
    EXPECT_GE(reader.bytes_read(), given);
    EXPECT_LE(reader.bytes_read(), given + 4096);
  });
  EXPECT_EQ(given, reader.total_bytes());
}

TEST(Records, FieldsAreCheckedWhereTheyAreUsed) {
  const auto records = records_of("a.jsonl", R"({"text":"x","n":"1e3","inf":"inf","half":"1.5x","list":[],"no":null})");
  const Record& record = records.at(0);
  EXPECT_EQ(record.number("n"), 1000.0);
  expect_parts(error_of([&] { record.at("txt"); }),
               {"a.jsonl line 1", "\"txt\"", "half, inf, list, n, text", "--columns"});
  expect_parts(error_of([&] { record.text("no"); }), {"a.jsonl line 1 must have a value as \"no\", got null"});
  expect_parts(error_of([&] { record.text("list"); }), {"a text", "got []"});
  for (const char* name : {"inf", "half", "text", "list"}) {
    expect_parts(error_of([&] { record.number(name); }), {"a.jsonl line 1", "finite number", name});
  }
}

}  // namespace
}  // namespace rf::data
