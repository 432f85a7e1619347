#include "rf/data/reader.h"

#include <unistd.h>

#include <algorithm>

#include "fixtures.h"

namespace rf::data {
namespace {

using Texts = std::vector<std::string>;

Texts documents(const std::string& text, DocumentRule rule, int64_t max_bytes = 1 << 20) {
  const Directory directory;
  write(directory / "a.txt", text);
  Texts found;
  read_documents(
      directory / "a.txt", rule, [&](std::string_view d) { found.emplace_back(d); }, max_bytes);
  return found;
}

TEST(Reader, RulesAndNames) {
  for (const char* name : {"file", "blank-line", "line"}) EXPECT_STREQ(document_rule_name(document_rule(name)), name);
  EXPECT_NE(error_of([] { document_rule("page"); }).find("page"), std::string::npos);
}

TEST(Reader, FileRule) {
  EXPECT_EQ(documents("a\n\nb", DocumentRule::kFile), (Texts{"a\n\nb\n"}));
  EXPECT_EQ(documents("", DocumentRule::kFile), Texts{});
  EXPECT_EQ(documents(" \n\t\r\n", DocumentRule::kFile), Texts{});
}

TEST(Reader, LineRuleAndCrLf) {
  EXPECT_EQ(documents("a b\r\n\r\nc\nd\r", DocumentRule::kLine), (Texts{"a b", "c", "d"}));
  EXPECT_EQ(documents("\xEF\xBB\xBF"
                      "a\n\xEF\xBB\xBF",
                      DocumentRule::kLine),
            (Texts{"a", "\xEF\xBB\xBF"}));
}

TEST(Reader, BlankLineRule) {
  EXPECT_EQ(documents("a\r\nb\r\n \r\n\r\nc\n\n\n", DocumentRule::kBlankLine), (Texts{"a\nb\n", "c\n"}));
}

TEST(Reader, LongDocumentsAreCut) {
  EXPECT_EQ(documents("aa\nbb\ncc", DocumentRule::kFile, 7), (Texts{"aa\nbb\n", "cc\n"}));
  EXPECT_EQ(documents("aa bb cc", DocumentRule::kLine, 7), (Texts{"aa bb ", "cc"}));
  EXPECT_EQ(documents("abcdefgh", DocumentRule::kLine, 3), (Texts{"abc", "def", "gh"}));
  // U+4E2D is three bytes: no character is cut.
  EXPECT_EQ(documents("中中中", DocumentRule::kLine, 4), (Texts{"中", "中", "中"}));
  EXPECT_EQ(documents("中", DocumentRule::kLine, 1), (Texts{"\xE4", "\xB8", "\xAD"}));
}

TEST(Reader, PiecesOfTheFileDoNotShow) {
  std::string text;  // several times what is read at once
  for (int i = 0; i < 400000; ++i) text += "line " + std::to_string(i) + "\r\n";
  const Texts lines = documents(text, DocumentRule::kLine);
  ASSERT_EQ(lines.size(), 400000u);
  for (size_t i = 0; i < lines.size(); ++i) ASSERT_EQ(lines[i], "line " + std::to_string(i));
  std::string joined;
  for (const std::string& piece : documents(text, DocumentRule::kFile, 1000)) {
    ASSERT_LE(piece.size(), 1000u);
    joined += piece;
  }
  EXPECT_EQ(std::count(joined.begin(), joined.end(), '\n'), 400000);
  EXPECT_EQ(std::count(joined.begin(), joined.end(), '\r'), 0);
}

TEST(Reader, ListsDirectoriesInOrderOnce) {
  const Directory directory;
  write(directory / "b.txt", "b");
  write(directory / "a/z.txt", "z");
  write(directory / "a/y.md", "y");
  EXPECT_EQ(list_text_files({directory.path(), directory / "b.txt", directory / "a/../b.txt", directory / "a/y.md"}),
            (Texts{directory / "a/../b.txt", directory / "a/y.md", directory / "a/z.txt"}));
}

TEST(Reader, BadPathsAreNamed) {
  const Directory directory;
  write(directory / "a.txt", "a");
  std::filesystem::create_directories(directory / "empty");
  std::filesystem::create_symlink(directory / "nowhere", directory / "dangling.txt");
  for (const std::string name : {"missing.txt", "a.txt/b", "empty", "dangling.txt"}) {
    const std::string message = error_of([&] { list_text_files({directory / name}); });
    EXPECT_NE(message.find(directory / name), std::string::npos) << message;
  }
  EXPECT_NE(error_of([&] { list_text_files({directory.path()}); }).find("dangling.txt"), std::string::npos);
  EXPECT_NE(error_of([&] { list_text_files({"/dev/null"}); }).find("/dev/null"), std::string::npos);
  EXPECT_NE(error_of([&] { list_text_files({}); }).find("none"), std::string::npos);
  const auto ignore = [](std::string_view) {};
  EXPECT_NE(error_of([&] { read_documents(directory / "x", DocumentRule::kFile, ignore); }).find(directory / "x"),
            std::string::npos);
  EXPECT_NE(error_of([&] { read_documents(directory / "empty", DocumentRule::kFile, ignore); }).find("empty"),
            std::string::npos);
}

TEST(Reader, UnreadableFile) {
  if (::geteuid() == 0) GTEST_SKIP() << "every file can be read by root";
  const Directory directory;
  write(directory / "a.txt", "a");
  std::filesystem::permissions(directory / "a.txt", std::filesystem::perms::none);
  EXPECT_NE(error_of([&] { list_text_files({directory / "a.txt"}); }).find("a.txt"), std::string::npos);
}

}  // namespace
}  // namespace rf::data
