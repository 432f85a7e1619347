// The tokens of a chat template: Jinja's, with trim_blocks and lstrip_blocks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rf::text::chat {

struct Token {
  // kText is between the tags; kOutput begins {{ and kBlock begins {%, and kTagEnd ends both.
  enum class Kind { kText, kOutput, kBlock, kTagEnd, kName, kString, kInteger, kFloat, kOperator, kEnd };
  Kind kind = Kind::kEnd;
  std::string text;  // of a string, its content
  int line = 1;
};

// Throws Problem; `line` is then where.
std::vector<Token> read_tokens(std::string_view source, int& line);

}  // namespace rf::text::chat
