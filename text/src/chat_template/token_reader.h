// Reads the tokens of a chat template in sequence.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat_template/lexer.h"
#include "chat_template/value.h"
#include "rf/io/printable.h"

namespace rf::text::chat {

class TokenReader {
 public:
  // line: of the last token that was taken, for messages.
  TokenReader(std::vector<Token> tokens, int& line) : line_(line), tokens_(std::move(tokens)) {}

  const Token& token(size_t ahead = 0) const { return tokens_[std::min(next_ + ahead, tokens_.size() - 1)]; }
  bool is(Token::Kind kind, size_t ahead = 0) const { return token(ahead).kind == kind; }
  bool is_operator(std::string_view text) const { return is(Token::Kind::kOperator) && token().text == text; }
  bool is_name(std::string_view text, size_t ahead = 0) const {
    return is(Token::Kind::kName, ahead) && token(ahead).text == text;
  }
  Token take() {
    const Token taken = token();
    line_ = taken.line;
    if (next_ + 1 < tokens_.size()) ++next_;
    return taken;
  }
  bool take_operator(std::string_view text) {
    if (!is_operator(text)) return false;
    take();
    return true;
  }
  bool take_name(std::string_view text) {
    if (!is_name(text)) return false;
    take();
    return true;
  }
  [[noreturn]] void refuse_token(std::string_view expected) {
    const Token found = take();
    const bool has_text = !found.text.empty();
    refuse("{} must be here, got {}", expected,
           has_text                          ? io::printable(found.text)
           : found.kind == Token::Kind::kEnd ? "the end of the template"
                                             : "the end of the tag");
  }
  void expect_operator(std::string_view text) {
    if (!take_operator(text)) refuse_token(text);
  }
  std::string expect_name() {
    if (!is(Token::Kind::kName)) refuse_token("a name");
    return take().text;
  }
  void end_tag() {
    if (!is(Token::Kind::kTagEnd)) refuse_token("the end of the tag");
    take();
  }
  int line() const { return line_; }

 private:
  int& line_;
  const std::vector<Token> tokens_;
  size_t next_ = 0;
};

}  // namespace rf::text::chat
