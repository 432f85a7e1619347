// Strict JSON: what RFC 8259 allows is read, duplicate keys and hostile nesting are errors that say where.
#include <nlohmann/json.hpp>

#include "io/support.h"
#include "rf/io/files.h"

namespace rf::io {
namespace {

using rf::testing::expect_error;
using rf::testing::TempDir;

TEST(Json, ReadsValues) {
  const auto json =
      parse_json(R"( {"a": [1, -2, 2.5, "é\n", true, null, {}], "b": {"a": 18446744073709551615}} )", "t");
  EXPECT_EQ(json["a"][0], 1);
  EXPECT_EQ(json["a"][1], -2);
  EXPECT_EQ(json["a"][2], 2.5);
  EXPECT_EQ(json["a"][3], "\xc3\xa9\n");
  EXPECT_EQ(json["a"][4], true);
  EXPECT_TRUE(json["a"][5].is_null());
  EXPECT_TRUE(json["a"][6].is_object());
  EXPECT_EQ(json["b"]["a"], 18446744073709551615u);
  EXPECT_EQ(parse_json("7", "t"), 7);
  EXPECT_TRUE(parse_json("[]", "t").empty());
}

TEST(Json, DuplicateKeysAreAnErrorWithTheirPlace) {
  expect_error([] { parse_json("{\"a\": 1,\n  \"a\": 2}", "run.json"); },
               {"[run.json]", "unique", "\"a\"", "line 2, column 5"});
  expect_error([] { parse_json(R"({"x": [{"b": 1, "b": 1}]})", "t"); }, {"unique", "\"b\"", "line 1, column 19"});
  EXPECT_NO_THROW(parse_json(R"({"a": {"b": 1}, "b": {"a": 1}})", "t"));
}

TEST(Json, SyntaxErrorsHaveLineAndColumn) {
  expect_error([] { parse_json("{\"a\":\n NaN}", "t"); }, {"[t]", "JSON", "line 2, column 2"});
  expect_error([] { parse_json("[1, 2,]", "t"); }, {"line 1, column 7"});
  expect_error([] { parse_json("[Infinity]", "t"); }, {"JSON"});
  expect_error([] { parse_json("{} x", "t"); }, {"line 1, column 4"});
  expect_error([] { parse_json("// c\n1", "t"); }, {"JSON"});
  expect_error([] { parse_json("", "t"); }, {"JSON"});
  expect_error([] { parse_json("1e999", "t"); }, {"JSON", "1e999"});
  expect_error([] { parse_json("\"\xff\"", "t"); }, {"UTF-8", "\\xff"});
  expect_error([] { parse_json(std::string_view("{}\n\0x", 5), "t"); }, {"JSON", "NUL", "line 2, column 1"});
}

TEST(Json, NestingIsBounded) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_NO_THROW(parse_json(nested(64), "t"));
  expect_error([&] { parse_json(nested(65), "t"); }, {"64 deep", "column 65"});
  expect_error([] { parse_json(std::string(10'000'000, '['), "t"); }, {"64 deep"});
}

TEST(Json, ReadJsonNamesTheFile) {
  const TempDir dir;
  write_file(dir.file("a.json"), "{\"k\": [1]}");
  EXPECT_EQ(read_json(dir.file("a.json"))["k"][0], 1);
  write_file(dir.file("a.json"), "{");
  expect_error([&] { read_json(dir.file("a.json")); }, {dir.file("a.json"), "JSON"});
}

}  // namespace
}  // namespace rf::io
