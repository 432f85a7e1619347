// Text for a terminal, for JSON and for a shell: JSON says the same to another reader, and a shell gives the word back.
#include "rf/io/shown_text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace rf::io {
namespace {

std::string utf8(uint32_t code) {
  char escape[9];
  std::snprintf(escape, sizeof escape, "\"\\u%04x\"", code & 0xFFFFu);
  return nlohmann::json::parse(escape);
}

// Controls and the characters of bidirectional text, from the Unicode character database.
std::vector<uint32_t> steering() {
  std::vector<uint32_t> codes = {0x61C,  0x200E, 0x200F, 0x202A, 0x202B, 0x202C, 0x202D,
                                 0x202E, 0x2066, 0x2067, 0x2068, 0x2069, 0x7F};
  for (uint32_t code = 1; code < 0x20; ++code) {
    if (code != '\n' && code != '\t') codes.push_back(code);
  }
  for (uint32_t code = 0x80; code < 0xA0; ++code) codes.push_back(code);
  return codes;
}

TEST(TerminalText, EscapesWhatSteersAndNothingElse) {
  for (const uint32_t code : steering()) {
    const std::string text = terminal_text(fmt::format("a{}b", utf8(code)));
    for (const char c : text) EXPECT_TRUE(c >= ' ' && c <= '~') << std::hex << code;
    EXPECT_TRUE(text.starts_with("a\\") && text.ends_with("b") && text.size() <= 8) << text;
  }
  const std::string plain = "two\nlines\tof caf\xC3\xA9 \xE4\xB8\xAD\xE6\x96\x87 \xF0\x9F\x98\x80 \\ \" \xE2\x80\xA6";
  EXPECT_EQ(terminal_text(plain), plain);
  EXPECT_EQ(terminal_text("\x1b[2J"), "\\x1b[2J");
  EXPECT_EQ(terminal_text("\xE2\x80\xAE"), "\\u202e");
}

TEST(TerminalText, EscapesBytesThatAreNotUtf8) {
  EXPECT_EQ(terminal_text("\xFF\xC3"), "\\xff\\xc3");
  EXPECT_EQ(terminal_text("\xC0\x9B"), "\\xc0\\x9b");           // ESC in two bytes
  EXPECT_EQ(terminal_text("\xED\xA0\x80"), "\\xed\\xa0\\x80");  // half a pair
  EXPECT_EQ(terminal_text("\x9B"
                          "31m"),
            "\\x9b31m");  // C1 in Latin-1
  EXPECT_EQ(terminal_text("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
}

TEST(JsonText, SaysTheSameWithoutSteering) {
  for (const uint32_t code : steering()) {
    const nlohmann::json value = {{fmt::format("name{}", utf8(code)), fmt::format("{}x", utf8(code))}};
    const std::string text = json_text(value.dump());
    for (const char c : text) EXPECT_TRUE(c >= ' ' && c <= '~') << std::hex << code;
    EXPECT_EQ(nlohmann::json::parse(text), value);
  }
  EXPECT_EQ(json_text("{\"a\":\"\xE4\xB8\xAD\"}"), "{\"a\":\"\xE4\xB8\xAD\"}");
}

// What printf, called by bash, makes of a word.
std::string through_bash(const std::string& word) {
  std::FILE* const pipe =
      popen(("bash -c \"$(cat <<'END-OF-COMMAND'\nprintf %s " + word + "\nEND-OF-COMMAND\n)\"").c_str(), "r");
  std::string text;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) text += static_cast<char>(c);
  EXPECT_EQ(pclose(pipe), 0) << word;
  return text;
}

TEST(ShellWord, IsTheTextAgainInBash) {
  EXPECT_EQ(shell_word("runs/a-1.b"), "runs/a-1.b");
  for (const std::string text : {"", "a b", "x'; touch /tmp/never; '", "$(id)`id`$HOME\"", "it's", "\x1b[31m'\\n",
                                 "a\nb", "caf\xC3\xA9 \xE2\x80\xAE", "\xFF", "-n*?[a]{b,c}~!#&|<>;()\\",
                                 "a\x01"
                                 "1"}) {
    const std::string word = shell_word(text);
    EXPECT_EQ(through_bash(word), text) << word;
    EXPECT_EQ(terminal_text(word), word);
  }
}

}  // namespace
}  // namespace rf::io
