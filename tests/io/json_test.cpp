// Strict JSON: what RFC 8259 allows is read, duplicate keys and hostile nesting are errors that say where.
#include <nlohmann/json.hpp>

#include "io/support.h"
#include "rf/io/files.h"

namespace rf::io {
namespace {

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

}  // namespace
}  // namespace rf::io
